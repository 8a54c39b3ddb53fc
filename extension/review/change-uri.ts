import { Uri, window } from 'vscode';
import { parseSessionAuthority } from '../../protocol/links.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { ReviewFile } from '../../protocol/review.ts';
import { documentPath } from '../files/document-path.ts';
import { workspaceUri } from '../files/location.ts';
import type { Homes } from '../files/location.ts';

/** `holdfast-review://<session>.<home id>/workspace/…?…`: one side of a change, as text. Nothing below it can be listed. */
export const REVIEW_SCHEME = 'holdfast-review';

export type Side = 'base' | 'target';

/** One side of a change in the version that a person sees. */
export interface ShownChange {
  readonly session: string;
  /** As in the workspace, without marks. */
  readonly path: string;
  /** Names the content of both sides: the document of this URI never changes. */
  readonly id: string;
  readonly side: Side;
}

export function changeUri(
  homes: Pick<Homes, 'of'>,
  session: string,
  { path, id }: Pick<ReviewFile, 'path' | 'id'>,
  side: Side,
): Uri {
  return workspaceUri(homes, session, path).with({
    scheme: REVIEW_SCHEME,
    path: documentPath(path),
    query: new URLSearchParams({ side, id, path }).toString(),
  });
}

/** The inverse of `changeUri`; undefined for everything else, because anybody can make up a URI. */
export function shownChange({ scheme, authority, query }: Uri): ShownChange | undefined {
  // First, because the parser is in the second bundle.
  if (scheme !== REVIEW_SCHEME) return undefined;
  const session = parseSessionAuthority(authority)?.id;
  const parts = new URLSearchParams(query);
  const [side, id, path] = [parts.get('side'), parts.get('id'), parts.get('path')];
  if (session === undefined || id === null || path === null) return undefined;
  if (side !== 'base' && side !== 'target') return undefined;
  return /^[0-9a-f]{24}$/.test(id) && path.startsWith(`${WORKSPACE}/`)
    ? { session, path, id, side }
    : undefined;
}

/** The change that the active editor shows, whichever of its sides has the focus. */
export function activeChange(): ShownChange | undefined {
  const focused = window.activeTextEditor?.document.uri;
  const inFocus = focused === undefined ? undefined : shownChange(focused);
  if (inFocus !== undefined) return inFocus;
  const input: unknown = window.tabGroups.activeTabGroup.activeTab?.input;
  const isDiff = typeof input === 'object' && input !== null && 'modified' in input;
  return isDiff && input.modified instanceof Uri ? shownChange(input.modified) : undefined;
}
