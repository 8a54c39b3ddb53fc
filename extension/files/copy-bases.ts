import type { Uri } from 'vscode';
import { FILE_CHUNK_BYTES } from '../../protocol/files.ts';
import { versionAtNewPath } from './base-versions.ts';
import type { DocumentBases } from './document-bases.ts';
import { locate } from './location.ts';
import type { SessionFiles, VersionedStat } from './session-files.ts';

/**
 * Renames or copies a file or folder, and copies the bases of the open documents in it. VS Code copies their unsaved
 * text into documents at the new path without reading the files, so without a base every save of those would be a
 * conflict.
 */
export async function copyBases(
  files: SessionFiles,
  bases: DocumentBases,
  { from, to }: { readonly from: Uri; readonly to: Uri },
  renameOrCopy: () => Promise<void>,
): Promise<void> {
  const documents = await Promise.all(
    bases.basesBelow(from).map(async ({ uri, base }) => ({
      uri,
      target: to.with({ path: `${to.path}${uri.path.slice(from.path.length)}` }),
      base,
      before: await versionedStat(files, uri),
    })),
  );
  await renameOrCopy();
  await Promise.all(
    documents.map(async ({ uri, target, base, before }) => {
      // The version of a large file depends on its change time (ctime), which a rename advances.
      const isLarge = before !== undefined && before.size > FILE_CHUNK_BYTES;
      const after = isLarge ? await versionedStat(files, target) : undefined;
      bases.copyBase(uri, target, { ...base, version: versionAtNewPath(base, before, after) });
    }),
  );
}

async function versionedStat(files: SessionFiles, uri: Uri): Promise<VersionedStat | undefined> {
  const location = locate(uri);
  if (location.kind !== 'workspace') return undefined;
  // Without a stat the base keeps its version, which is correct except for large files.
  return files.versionedStat(location.session, location.path).catch(() => undefined);
}
