import { Uri, commands, window } from 'vscode';
import { type Exported, exportArtifact, planExport } from '../../handoff/artifact-export.ts';
import { readArtifactFiles } from '../../handoff/artifact-files.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatCount, formatProgress } from '../base/format.ts';
import { withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import { choosePlace, chooseReleased } from '../handoff/choices.ts';
import { describeStayedBehind } from '../handoff/plan-text.ts';
import type { KeptArtifact } from './kept.ts';

/**
 * Writes the files of an artifact into a new folder of this machine. `given`: the folder, from a program, for which nothing leaves the
 * quarantine. Undefined where the person stopped.
 */
export async function exportKept(
  { host, artifact }: KeptArtifact,
  given: string | undefined,
): Promise<Exported | undefined> {
  const title = `Export ${sanitize(artifact.name, 60)}`;
  const contents = await withProgress(title, (_report, signal) =>
    readArtifactFiles(host, artifact.id, signal),
  );
  const all = { paths: [], released: [] };
  const releasedPaths =
    given === undefined ? await chooseReleased(planExport(contents, all), title) : new Set<string>();
  if (releasedPaths === undefined) return undefined;
  const choice = { ...all, releasedPaths };
  const planned = planExport(contents, choice);
  if (planned.travels.length === 0) {
    throw new HoldfastError('not_found', `Nothing of “${sanitize(artifact.name, 60)}” can be exported`, {
      why: describeStayedBehind(planned).join(' ') || 'it has no files',
    });
  }
  const folder = given ?? (await choosePlace('dir', artifact.name, title));
  if (folder === undefined) return undefined;
  const exported = await withProgress(title, (report, signal) =>
    exportArtifact(host, contents, {
      ...choice,
      ...{ folder, signal },
      onProgress: (done, of) => report(`${formatProgress(done, of)} files`),
    }),
  );
  if (given === undefined) showExported(exported);
  return exported;
}

function showExported(exported: Exported): void {
  const OPEN_FOLDER = 'Open Folder';
  const written = `${formatCount(exported.files, 'file')} written into ${sanitize(exported.folder)}.`;
  void window
    .showInformationMessage([written, ...describeStayedBehind(exported)].join(' '), OPEN_FOLDER)
    .then((choice) => {
      if (choice === OPEN_FOLDER)
        void commands.executeCommand('vscode.openFolder', Uri.file(exported.folder), {
          forceNewWindow: true,
        });
    });
}
