import type { Uri } from 'vscode';
import { FILE_CHUNK_BYTES } from '../../protocol/files.ts';
import { versionAtNewPath } from './base-versions.ts';
import type { DocumentBases } from './document-bases.ts';
import { locate } from './location.ts';
import type { SessionFiles, VersionedStat } from './session-files.ts';

/**
 * VS Code carries the unsaved text of a document along when the document's file, or a folder above it, is renamed or copied. The new
 * document is never read, so its base version has to be carried along as well: without one every save of it would be a conflict.
 */
export async function copyBases(
  files: SessionFiles,
  bases: DocumentBases,
  { from, to }: { readonly from: Uri; readonly to: Uri },
  move: () => Promise<void>,
): Promise<void> {
  const carried = await Promise.all(
    bases.basesBelow(from).map(async ({ uri, base }) => ({
      uri,
      target: to.with({ path: `${to.path}${uri.path.slice(from.path.length)}` }),
      base,
      before: await versionedStat(files, uri),
    })),
  );
  await move();
  await Promise.all(
    carried.map(async ({ uri, target, base, before }) => {
      // The version of a large file comes from its change time, which a rename advances.
      const isLarge = before !== undefined && before.size > FILE_CHUNK_BYTES;
      const after = isLarge ? await versionedStat(files, target) : undefined;
      bases.copyBase(uri, target, { ...base, version: versionAtNewPath(base, before, after) });
    }),
  );
}

async function versionedStat(files: SessionFiles, uri: Uri): Promise<VersionedStat | undefined> {
  const location = locate(uri);
  if (location.kind !== 'workspace') return undefined;
  // Without an answer the base keeps its version, which is right for all but large files.
  return files.versionedStat(location.session, location.path).catch(() => undefined);
}
