import type { ChangeTotals, Snapshot } from '../../protocol/snapshots.ts';

/** How much differs, as `2 added, 1 changed, 3 deleted`. */
export function totalsWords(totals: ChangeTotals): string {
  const parts: [number, string][] = [
    [totals.added, 'added'],
    [totals.modified + totals.typechange, 'changed'],
    [totals.deleted, 'deleted'],
    [totals.renamed, 'renamed'],
    [totals.mode, 'with another mode or time'],
  ];
  const said = parts
    .filter(([number]) => number > 0)
    .map(([number, what]) => `${number.toLocaleString('en-US')} ${what}`);
  return said.length === 0 ? 'nothing differs' : said.join(', ');
}

/** How much of what is done, as `1,200 of 5,000`. */
export function farWords(done: number, of: number | null): string {
  const so = done.toLocaleString('en-US');
  return of === null ? so : `${so} of ${of.toLocaleString('en-US')}`;
}

/** What a snapshot is called: its label, or why it was taken. */
export function snapshotTitle({ label, reason }: Pick<Snapshot, 'label' | 'reason'>): string {
  if (label !== null) return label;
  switch (reason) {
    case 'manual':
      return 'Snapshot';
    case 'before-turn':
      return 'Before a turn';
    case 'before-restore':
      return 'Before it was restored';
    case 'before-reset':
      return 'Before it was emptied';
    case 'before-delete':
      return 'Before it was deleted';
  }
}
