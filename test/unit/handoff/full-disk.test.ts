import { expect, test } from 'vitest';
import { isDiskFull, namingFullDisk } from '../../../handoff/full-disk.ts';
import { rejectedError, temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

test.each([
  'fatal: write error: No space left on device',
  'error: unable to create file src/a: No space left on device\nfatal: the index was not written',
  "fatal: cannot create directory at 'src': Disk quota exceeded",
  'error: file write error (No space left on device)',
])('git says that the disk is full: %j', async (said) => {
  expect(await isDiskFull(temporaryDirectory(), said)).toBe(true);
});

test.each([
  'error: ENOSPC: bad path',
  'error: unable to create file ENOSPC: Permission denied',
  "fatal: could not open 'EDQUOT' for reading: No such file or directory",
  'error: unable to create file No space left on device: Permission denied',
  "error: 'No space left on device' is outside the repository",
])('a name in what git says is no full disk: %j', async (said) => {
  expect(await isDiskFull(temporaryDirectory(), said)).toBe(false);
});

test('an error of a file is a full disk by its code, not by its text', async () => {
  const failing = (code: string) =>
    namingFullDisk('It was not done', () =>
      Promise.reject(Object.assign(new Error('ENOSPC: in a name'), { code })),
    );
  for (const code of ['ENOSPC', 'EDQUOT'])
    expect(await rejectedError(failing(code))).toMatchObject({ code: 'no_space', cause: { code } });
  await expect(failing('EACCES')).rejects.toMatchObject({ code: 'EACCES' });
});
