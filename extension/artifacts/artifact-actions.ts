import { window } from 'vscode';
import { readArtifactFiles } from '../../handoff/artifact-files.ts';
import { PATCH_NAME } from '../../protocol/artifacts.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { formatBytes, formatCount } from '../base/format.ts';
import { withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { ArtifactDocuments } from './artifact-documents.ts';
import type { KeptArtifact } from './kept.ts';
import { fileUri, verificationUri, verifyArtifact } from './read-document.ts';
import { originOf } from './rows.ts';

/** Opens a file of an artifact: the only one, or the one that the person chooses. `given`: its path, from a program. */
export async function openKept(
  kept: KeptArtifact,
  documents: ArtifactDocuments,
  given: string | undefined,
): Promise<void> {
  const path = given ?? (await choosePath(kept));
  if (path !== undefined) await documents.show(fileUri(kept, path));
}

async function choosePath({ host, artifact }: KeptArtifact): Promise<string | undefined> {
  if (artifact.kind === 'patch') return `${WORKSPACE}/${PATCH_NAME}`;
  const title = sanitize(artifact.name, 100);
  const { files } = await withProgress(`Opening ${title}`, (_report, signal) =>
    readArtifactFiles(host, artifact.id, signal),
  );
  const [first] = files;
  if (files.length === 1) return first?.path;
  const items = files.map(({ path, size, executable }) => ({
    label: sanitize(path.slice(WORKSPACE.length + 1)),
    description: `${formatBytes(size)}${executable ? ' · executable' : ''}`,
    path,
  }));
  return (await window.showQuickPick(items, { title, placeHolder: 'Choose a file' }))?.path;
}

/** Checks an artifact and shows the result in words. Returns whether it is what was kept. */
export async function verifyKept(kept: KeptArtifact, documents: ArtifactDocuments): Promise<boolean> {
  const { host, artifact } = kept;
  const { valid, text } = await withProgress(`Verifying ${sanitize(artifact.name, 60)}`, (report, signal) =>
    verifyArtifact(host, artifact.id, { signal, onProgress: report }),
  );
  await documents.show(verificationUri(kept), text);
  return valid;
}

/** Deletes an artifact after the person has confirmed it. Returns whether it is gone. `confirmed`: from a program. */
export async function deleteKept({ host, artifact }: KeptArtifact, confirmed: boolean): Promise<boolean> {
  const name = sanitize(artifact.name, 100);
  if (!confirmed) {
    const DELETE = 'Delete';
    const size = `${formatCount(artifact.files, 'file')}, ${formatBytes(artifact.bytes)}`;
    const choice = await window.showWarningMessage(
      `Delete the artifact “${name}”?`,
      {
        modal: true,
        detail: `It has ${size} from ${originOf(artifact)}, and cannot be recovered. The session stays as it is.`,
      },
      DELETE,
    );
    if (choice !== DELETE) return false;
  }
  await withProgress(`Deleting ${name}`, (_report, signal) =>
    host.call('artifact/remove', { artifact: artifact.id }, { signal }),
  );
  window.setStatusBarMessage('The artifact was deleted', 8_000);
  return true;
}
