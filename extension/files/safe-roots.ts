import type { Uri } from 'vscode';

export interface WindowRoot {
  readonly uri: Uri;
  readonly name: string;
}

/** How a window must change so that an agent can write none of its root folders and not its workspace file. */
export type SafeRoots =
  | { readonly kind: 'asIs' }
  | { readonly kind: 'open'; readonly root: Uri }
  /** For a workspace file of the person: replace `count` folders, starting at index `from`, with these. */
  | {
      readonly kind: 'replace';
      readonly from: number;
      readonly count: number;
      readonly folders: WindowRoot[];
    };

/** `isOurs`: whether a URI is a file of a session or a snapshot. */
export function safeRoots(
  workspaceFile: Uri | undefined,
  folders: readonly WindowRoot[],
  isOurs: (uri: Uri) => boolean,
): SafeRoots {
  if (workspaceFile !== undefined && isOurs(workspaceFile))
    return { kind: 'open', root: rootAbove(workspaceFile) };
  const isUnsafe = ({ uri }: WindowRoot): boolean => isOurs(uri) && uri.path !== '/' && uri.path !== '';
  const from = folders.findIndex(isUnsafe);
  const first = folders[from];
  if (first === undefined) return { kind: 'asIs' };
  if (workspaceFile === undefined) return { kind: 'open', root: rootAbove(first.uri) };
  const taken = new Set(folders.slice(0, from).map(({ uri }) => uri.toString()));
  const safe: WindowRoot[] = [];
  for (const folder of folders.slice(from)) {
    const uri = isUnsafe(folder) ? rootAbove(folder.uri) : folder.uri;
    // Each session is shown once.
    if (taken.has(uri.toString())) continue;
    taken.add(uri.toString());
    safe.push({ uri, name: folder.name });
  }
  return { kind: 'replace', from, count: folders.length - from, folders: safe };
}

function rootAbove(uri: Uri): Uri {
  return uri.with({ path: '/', query: '', fragment: '' });
}
