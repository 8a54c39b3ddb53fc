import { Uri, workspace } from 'vscode';
import {
  formatAuthority,
  parseArtifactAuthority,
  parseSessionAuthority,
  parseSnapshotAuthority,
} from '../../protocol/links.ts';
import type { LinkAuthority } from '../../protocol/links.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { parseDisplayPath, displayPath } from './configuration-paths.ts';

/** `holdfast://<session>.<home id>/workspace/…`; without a home id it means the home of this machine. */
export const SCHEME = 'holdfast';

/** `holdfast-snapshot://<snapshot>.<home id>/workspace/…` */
export const SNAPSHOT_SCHEME = 'holdfast-snapshot';

/** `holdfast-artifact://<artifact>.<home id>/workspace/…?…`: a file of an artifact, as text. Nothing below it can be listed. */
export const ARTIFACT_SCHEME = 'holdfast-artifact';

/** `holdfast-history://<session>/…`: the history of a session, or its transcript. */
export const HISTORY_SCHEME = 'holdfast-history';

/** `holdfast-manifest://<session>/…`: a manifest of a session in words; without a session, a saved one. */
export const MANIFEST_SCHEME = 'holdfast-manifest';

/** What a URI of ours refers to: a path in a workspace, or the folder above it, which only we provide. */
export type Location =
  | { readonly kind: 'root'; readonly session: string }
  | { readonly kind: 'workspace'; readonly session: string; readonly path: string }
  | { readonly kind: 'nowhere' };

/** The home of a host. `homeId` is undefined if it has none yet, or it is not known. */
export interface LocalHome {
  readonly homeId: string | undefined;
}

/** The homes that this window works with. */
export interface Homes {
  /** The home that has a session. */
  of(session: string): LocalHome;
  /** The home of a link; undefined where no host of this window has it. */
  at(uri: Uri): LocalHome | undefined;
}

/** A path in a session's workspace. */
export interface WorkspaceFile {
  readonly session: string;
  readonly path: string;
}

export function locate(uri: Uri): Location {
  return locateBelow(parseSessionAuthority(uri.authority), uri);
}

/** The same for a snapshot's files; `session` is then the snapshot's id. */
export function locateSnapshot(uri: Uri): Location {
  return locateBelow(parseSnapshotAuthority(uri.authority), uri);
}

/** The id of the artifact that a URI names. */
export function artifactIn({ scheme, authority }: Uri): string | undefined {
  return scheme === ARTIFACT_SCHEME ? parseArtifactAuthority(authority)?.id : undefined;
}

/** The id of the home that a URI of ours names, where no host of this window has it. */
export function otherHomeOf(uri: Uri, homes: Pick<Homes, 'at'>): string | undefined {
  // First, because the parsers are in the second bundle.
  if (!uri.authority.includes('.')) return undefined;
  const home = parserOf(uri.scheme)(uri.authority)?.home;
  return home === undefined || home === null || homes.at(uri) !== undefined ? undefined : home;
}

function parserOf(scheme: string): (authority: string) => LinkAuthority | undefined {
  if (scheme === SNAPSHOT_SCHEME) return parseSnapshotAuthority;
  return scheme === ARTIFACT_SCHEME ? parseArtifactAuthority : parseSessionAuthority;
}

function locateBelow(owner: LinkAuthority | undefined, { path }: Uri): Location {
  if (owner === undefined) return { kind: 'nowhere' };
  const session = owner.id;
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
export function rootUri(homes: Pick<Homes, 'of'>, session: string): Uri {
  return Uri.from({ scheme: SCHEME, authority: authorityOf(SCHEME, session, homes.of(session)), path: '/' });
}

/** `path`: `/workspace/…` as the agent sees it. `locate` is the inverse. */
export function workspaceUri(homes: Pick<Homes, 'of'>, session: string, path: string): Uri {
  const authority = authorityOf(SCHEME, session, homes.of(session));
  return Uri.from({ scheme: SCHEME, authority, path: displayPath(path) });
}

/** The same for a file of a snapshot. */
export function snapshotUri(home: LocalHome, snapshot: string, path: string): Uri {
  const authority = authorityOf(SNAPSHOT_SCHEME, snapshot, home);
  return Uri.from({ scheme: SNAPSHOT_SCHEME, authority, path: displayPath(path) });
}

/** A document about an artifact. `path`: as it is shown. */
export function artifactUri(home: LocalHome, artifact: string, path: string): Uri {
  return Uri.from({ scheme: ARTIFACT_SCHEME, authority: authorityOf(ARTIFACT_SCHEME, artifact, home), path });
}

/**
 * The URI that this window uses for the file of a link without a home id; undefined where the link has that form, or is
 * none of ours.
 */
export function canonicalUri(home: LocalHome, uri: Uri): Uri | undefined {
  if ((uri.scheme !== SCHEME && uri.scheme !== SNAPSHOT_SCHEME) || uri.authority.includes('.'))
    return undefined;
  const owner = parserOf(uri.scheme)(uri.authority);
  const authority = owner === undefined ? uri.authority : authorityOf(uri.scheme, owner.id, home);
  return authority === uri.authority ? undefined : uri.with({ authority });
}

/** The same for every link to one file, with or without a home id. Ids are random, so no two hosts share one. */
export function fileKey(uri: Uri): string {
  const [id = ''] = uri.authority.split('.', 1);
  return uri.with({ authority: id }).toString();
}

/** Another path of the same session or snapshot, with the authority of `uri`. */
export function siblingUri(uri: Uri, path: string): Uri {
  return Uri.from({ scheme: uri.scheme, authority: uri.authority, path: displayPath(path) });
}

/**
 * The authority that the window's own folder has, because to VS Code another authority is another file. A window that was
 * opened by a link without a home id keeps that form.
 */
function authorityOf(scheme: string, id: string, { homeId }: LocalHome): string {
  const named = homeId === undefined ? id : formatAuthority({ id, home: homeId });
  const open = workspace.workspaceFolders?.find(
    ({ uri: { scheme: other, authority } }) => other === scheme && (authority === named || authority === id),
  );
  return open?.uri.authority ?? named;
}

/** As in `protocol/paths.ts`, which a window loads only once it shows a session: decorations ask this in every window. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
