import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Uri, window } from 'vscode';
import type { HandoffPlan } from '../../handoff/plan.ts';
import { type RawPath, readable } from '../../project/raw-path.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';

/** The file of a patch or a new folder, absolute. `of`: after whose name it is called. */
export async function choosePlace(
  to: 'dir' | 'patch',
  of: string,
  title: string,
): Promise<string | undefined> {
  const name = of.replaceAll(/[^\w.-]+/g, '-').replace(/^[.-]+/, '') || 'session';
  const home = process.env['HOME'] ?? tmpdir();
  const chosen = await window.showSaveDialog({
    title: `${title}: ${to === 'dir' ? 'a new folder' : 'the patch'}`,
    defaultUri: Uri.file(join(home, to === 'dir' ? name : `${name}.patch`)),
    saveLabel: to === 'dir' ? 'Create Folder' : 'Save Patch',
  });
  return chosen?.fsPath;
}

/** The paths that the person lets out of quarantine: nothing is chosen beforehand, and what is needs a yes of its own. */
export async function chooseReleased(
  { quarantined }: Pick<HandoffPlan, 'quarantined'>,
  title: string,
): Promise<ReadonlySet<RawPath> | undefined> {
  if (quarantined.length === 0) return new Set();
  const items = quarantined.map(({ path, risks }) => ({
    label: sanitize(readable(path)),
    description: risks.join(', '),
    path,
  }));
  const picked = await window.showQuickPick(items, {
    title: `${title}: quarantine`,
    placeHolder:
      'These would run on your machine or lead out of the tree. Choose what to let through: nothing, if in doubt',
    canPickMany: true,
    matchOnDescription: true,
  });
  if (picked === undefined) return undefined;
  const released = picked.map(({ path }) => path);
  if (released.length === 0) return new Set();
  const LET_THROUGH = 'Let Through';
  const names = released
    .slice(0, 10)
    .map((path) => sanitize(readable(path), 100))
    .join('\n');
  const more = released.length > 10 ? `\nand ${released.length - 10} more` : '';
  const choice = await window.showWarningMessage(
    `Let ${formatCount(released.length, 'file')} out of quarantine?`,
    {
      modal: true,
      detail: `They may run on your machine without being started on purpose:\n${names}${more}`,
    },
    LET_THROUGH,
  );
  return choice === LET_THROUGH ? new Set(released) : undefined;
}
