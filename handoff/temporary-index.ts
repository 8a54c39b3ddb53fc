import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Git } from './git.ts';

/** Runs `act` with an index that holds a tree, apart from the person's own. */
export async function withIndexOf<T>(
  git: Git,
  tree: string,
  act: (env: Readonly<Record<string, string>>) => Promise<T>,
): Promise<T> {
  const path = join(tmpdir(), `holdfast-index-${randomBytes(12).toString('hex')}`);
  const env = { GIT_INDEX_FILE: path };
  try {
    await git.run(['read-tree', tree], { env });
    return await act(env);
  } finally {
    await rm(path, { force: true });
    await rm(`${path}.lock`, { force: true });
  }
}
