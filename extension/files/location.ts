import { Uri } from 'vscode';
import { SessionIdSchema, SnapshotIdSchema } from '../../protocol/ids.ts';
import { WORKSPACE } from '../../protocol/paths.ts';

/** `holdfast://<session>/workspace/…` */
export const SCHEME = 'holdfast';

/** `holdfast-snapshot://<snapshot>/workspace/…` */
export const SNAPSHOT_SCHEME = 'holdfast-snapshot';

/** Where an address of ours leads: into a workspace, or to the root above it, which is nobody's folder but ours. */
export type Location =
  | { readonly kind: 'root'; readonly session: string }
  | { readonly kind: 'workspace'; readonly session: string; readonly path: string }
  | { readonly kind: 'nowhere' };

export function locate(uri: Uri): Location {
  if (!SessionIdSchema.safeParse(uri.authority).success) return { kind: 'nowhere' };
  return below(uri);
}

/** The same for a snapshot's files: `session` is then the snapshot's id. */
export function locateSnapshot(uri: Uri): Location {
  if (!SnapshotIdSchema.safeParse(uri.authority).success) return { kind: 'nowhere' };
  return below(uri);
}

function below({ authority: session, path }: Uri): Location {
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

/** What a snapshot has, which never changes. */
export function snapshotUriOf(snapshot: string, path: string): Uri {
  return Uri.from({ scheme: SNAPSHOT_SCHEME, authority: snapshot, path });
}

export function lastName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
