import { Uri } from 'vscode';
import { SessionIdSchema, SnapshotIdSchema } from '../../protocol/ids.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { parseDisplayPath, displayPath } from './configuration-paths.ts';

/** `holdfast://<session>/workspace/…` */
export const SCHEME = 'holdfast';

/** `holdfast-snapshot://<snapshot>/workspace/…` */
export const SNAPSHOT_SCHEME = 'holdfast-snapshot';

/** What a URI of ours refers to: a path in a workspace, or the folder above it, which only we provide. */
export type Location =
  | { readonly kind: 'root'; readonly session: string }
  | { readonly kind: 'workspace'; readonly session: string; readonly path: string }
  | { readonly kind: 'nowhere' };

export function locate(uri: Uri): Location {
  if (!SessionIdSchema.safeParse(uri.authority).success) return { kind: 'nowhere' };
  return below(uri);
}

/** The same for a snapshot's files; `session` is then the snapshot's id. */
export function locateSnapshot(uri: Uri): Location {
  if (!SnapshotIdSchema.safeParse(uri.authority).success) return { kind: 'nowhere' };
  return below(uri);
}

function below({ authority: session, path }: Uri): Location {
  const trimmed = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
  if (trimmed === '' || trimmed === '/') return { kind: 'root', session };
  if (trimmed !== WORKSPACE && !trimmed.startsWith(`${WORKSPACE}/`)) return { kind: 'nowhere' };
  if (/\/\.\.?(?=\/|$)/.test(trimmed)) return { kind: 'nowhere' };
  const real = parseDisplayPath(trimmed);
  return real.kind === 'path' ? { kind: 'workspace', session, path: real.path } : { kind: 'nowhere' };
}

/** The first unmarked configuration name in a URI's path; undefined where it has none. */
export function configurationNameIn({ path }: Uri): string | undefined {
  if (!path.startsWith(`${WORKSPACE}/`)) return undefined;
  const real = parseDisplayPath(path);
  return real.kind === 'configuration' ? real.name : undefined;
}

/**
 * The folder that a window opens. It contains only `workspace/`, so VS Code finds no file of the agent where it looks
 * for the configuration of a folder.
 */
export function rootUri(session: string): Uri {
  return Uri.from({ scheme: SCHEME, authority: session, path: '/' });
}

/** `path`: `/workspace/…` as the agent sees it. `locate` is the inverse. */
export function workspaceUri(session: string, path: string): Uri {
  return Uri.from({ scheme: SCHEME, authority: session, path: displayPath(path) });
}

/** The same for a file of a snapshot. */
export function snapshotUri(snapshot: string, path: string): Uri {
  return Uri.from({ scheme: SNAPSHOT_SCHEME, authority: snapshot, path: displayPath(path) });
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
