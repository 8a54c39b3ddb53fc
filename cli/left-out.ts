import type { LeftOut, Quarantined } from '../handoff/plan.ts';
import { readable } from '../project/raw-path.ts';
import type { Context } from './context.ts';
import { sanitizeLine } from './render/text.ts';

/** Paths that are named; of more there is only the number. */
export const MAX_LISTED = 20;

/** What an export or a handoff does not write, and what it wrote because the person let it through. */
export interface StayedBehind {
  readonly released: readonly Quarantined[];
  readonly quarantined: readonly Quarantined[];
  readonly refused: readonly LeftOut[];
}

/** For `--json`. */
export function describeStayedBehind({ released, quarantined, refused }: StayedBehind) {
  const withRisks = (list: readonly Quarantined[]) =>
    list.map(({ path, risks }) => ({ path: readable(path), risks }));
  return {
    released: withRisks(released),
    quarantined: withRisks(quarantined),
    refused: refused.map(({ path, why }) => ({ path: readable(path), why })),
  };
}

/**
 * Prints what stays behind. `danger`: what the files in quarantine would do. `prefixLength`: characters that their paths have before
 * those of the workspace, by which `--include-quarantined` takes them.
 */
export async function printStayedBehind(
  context: Context,
  { quarantined, refused }: StayedBehind,
  danger: string,
  prefixLength = 0,
): Promise<void> {
  if (quarantined.length > 0) {
    await context.printNote(`In quarantine, because they would ${danger}:`);
    for (const { path, risks } of quarantined.slice(0, MAX_LISTED))
      await context.printNote(`  ${sanitizeLine(readable(path.slice(prefixLength)))} (${risks.join(', ')})`);
    if (quarantined.length > MAX_LISTED)
      await context.printNote(`  and ${quarantined.length - MAX_LISTED} more`);
    await context.printHint('Let them through: --include-quarantined PATTERN');
  }
  for (const { path, why } of refused.slice(0, MAX_LISTED))
    await context.printNote(`left out: ${sanitizeLine(readable(path))}: ${why}`);
  if (refused.length > MAX_LISTED) await context.printNote(`left out: ${refused.length - MAX_LISTED} more`);
}
