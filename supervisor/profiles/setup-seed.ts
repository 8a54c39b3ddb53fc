import { createHash } from 'node:crypto';
import { type Profile, seedOf } from '../../protocol/profile.ts';
import type { SetupSeed } from '../setup/setup-commands.ts';
import { readRange, type SeedItem, seedItems } from './seed-source.ts';

const PIECE_BYTES = 4 * 2 ** 20;

/** Copies items into the workspace of a sandbox whose sidecar runs. */
export type FillWorkspace = (sandboxId: string, items: AsyncIterable<SeedItem>) => Promise<unknown>;

/** Whether a setup of the profile needs the files that new workspaces begin with. */
export function needsSeed(profile: Profile): boolean {
  return profile.setup?.run !== undefined && seedOf(profile) !== null;
}

/**
 * What the workspace of a setup begins with: the files of the project, as in a new session. `history`: a copy of the git history, as a
 * deploy stores it; null without. Null if the setup needs no files. Errors: `not_found`.
 */
export async function setupSeed(
  profile: Profile,
  { code, history }: { readonly code: string; readonly history: string | null },
  fill: FillWorkspace,
  signal: AbortSignal,
): Promise<SetupSeed | null> {
  const seed = seedOf(profile);
  if (seed === null || !needsSeed(profile)) return null;
  const items = (): AsyncIterable<SeedItem> =>
    seedItems({ code, history, folder: seed.folder, ignore: seed.ignore });
  const hash = createHash('sha256');
  for await (const item of items()) {
    signal.throwIfAborted();
    const { kind, path } = item;
    if (kind !== 'file') {
      hash.update(JSON.stringify([kind, path, kind === 'link' ? item.target : null]));
      continue;
    }
    hash.update(JSON.stringify([kind, path, item.mode & 0o111, item.size]));
    for (let at = 0; at < item.size; at += PIECE_BYTES)
      hash.update(await readRange(item.source, at, Math.min(PIECE_BYTES, item.size - at)));
  }
  return {
    hash: hash.digest('hex'),
    copyTo: async (sandboxId) => {
      await fill(sandboxId, items());
    },
  };
}
