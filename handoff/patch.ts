import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Git } from './git.ts';

/**
 * Runs `act` with a git that reads the repository's objects and writes new ones into a private folder, which is removed: the
 * repository stays as it is.
 */
export async function withPrivateObjects<T>(git: Git, act: (git: Git) => Promise<T>): Promise<T> {
  const objects = await git.text(['rev-parse', '--path-format=absolute', '--git-path', 'objects']);
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-objects-'));
  try {
    return await act(
      git.with({ GIT_OBJECT_DIRECTORY: folder, GIT_ALTERNATE_OBJECT_DIRECTORIES: JSON.stringify(objects) }),
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The commit as a patch for `git am --keep-cr`: complete, and independent of the person's settings for patches. */
export async function formatPatch(git: Git, commit: string): Promise<Buffer> {
  const settings = [
    '-c',
    'diff.noprefix=false',
    '-c',
    'diff.mnemonicPrefix=false',
    '-c',
    'format.useAutoBase=false',
  ];
  const plain = [
    '--no-ext-diff',
    '--no-textconv',
    '--no-attach',
    '--no-thread',
    '--no-signature',
    '--no-notes',
  ];
  return await git.bytes(
    [...settings, 'format-patch', '--stdout', '--binary', '--full-index', '-1', ...plain, commit],
    {
      what: 'The patch could not be made',
    },
  );
}
