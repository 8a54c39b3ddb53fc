import { Uri } from 'vscode';
import { SessionIdSchema } from '../../protocol/ids.ts';
import { WORKSPACE } from '../../protocol/paths.ts';

/** `holdfast://<session>/workspace/…` */
export const SCHEME = 'holdfast';

/** Where an address of ours leads: into a workspace, or to the root above it, which is nobody's folder but ours. */
export type Location =
  | { readonly kind: 'root'; readonly session: string }
  | { readonly kind: 'workspace'; readonly session: string; readonly path: string }
  | { readonly kind: 'nowhere' };

export function locate({ authority, path }: Uri): Location {
  const session = authority;
  if (!SessionIdSchema.safeParse(session).success) return { kind: 'nowhere' };
  const trimmed = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
  if (trimmed === '' || trimmed === '/') return { kind: 'root', session };
  if (trimmed !== WORKSPACE && !trimmed.startsWith(`${WORKSPACE}/`)) return { kind: 'nowhere' };
  if (/\/\.\.?(?=\/|$)/.test(trimmed)) return { kind: 'nowhere' };
  return { kind: 'workspace', session, path: trimmed };
}

/** The folder that a window opens: it shows `workspace/`, so nothing that an agent writes is ever VS Code's configuration. */
export function rootOf(session: string): Uri {
  return Uri.from({ scheme: SCHEME, authority: session, path: '/' });
}

/** `path`: `/workspace/…` */
export function uriOf(session: string, path: string): Uri {
  return Uri.from({ scheme: SCHEME, authority: session, path });
}

export function lastName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
