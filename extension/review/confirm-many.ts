import { window } from 'vscode';
import type { ReviewFile, Verdict } from '../../protocol/review.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { needsCare } from './review-model.ts';

/** Asks before many changes are decided at once. `replaced`: about how many of them there is another decision. */
export async function confirmMany(
  files: readonly ReviewFile[],
  verdict: Verdict,
  replaced = 0,
): Promise<boolean> {
  const careful = files.filter(needsCare);
  const names = careful
    .slice(0, 5)
    .map(({ path }) => sanitize(path, 80))
    .join('\n');
  const more = careful.length > 5 ? `\nand ${careful.length - 5} more` : '';
  const warning =
    careful.length === 0
      ? ''
      : `\n\n${formatCount(careful.length, 'change')} may run on your machine, lead out of the tree, or replace a folder:\n${names}${more}`;
  const again = replaced === 0 ? '' : `\n\n${formatCount(replaced, 'earlier decision')} will be replaced.`;
  const below = files.reduce((sum, file) => sum + file.below, 0);
  const hidden =
    below === 0 ? '' : `\n\n${formatCount(below, 'path')} below folders that came or went go with them.`;
  const button = verdict === 'accept' ? 'Accept All' : 'Reject All';
  const effect =
    verdict === 'accept'
      ? 'Only what you accept can be handed off.'
      : 'The workspace gets back what was there before.';
  const choice = await window.showWarningMessage(
    `${verdict === 'accept' ? 'Accept' : 'Reject'} ${formatCount(files.length, 'change')}?`,
    { modal: true, detail: `${effect} You can undo this.${again}${warning}${hidden}` },
    button,
  );
  return choice === button;
}
