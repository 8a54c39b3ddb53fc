import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { checkDisplay, desktopArguments, ensureDesktop } from '../../../scripts/setup/desktop.mjs';
import { SetupError } from '../../../scripts/setup/project.mjs';
import { Step } from '../../../scripts/setup/progress.mjs';

const step = new Step(
  () => undefined,
  () => undefined,
);
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-desktop-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function refused(work: Promise<unknown>): Promise<SetupError> {
  const error: unknown = await work.then(
    () => new Error('it was not refused'),
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof SetupError)) throw error;
  return error;
}

test('an option, then the environment says which VS Code; what is left is for the suites', () => {
  const env = { HOLDFAST_VSCODE: '/opt/code' };
  expect(desktopArguments(['-t', 'x'], {})).toEqual({ vscode: undefined, rest: ['-t', 'x'] });
  expect(desktopArguments([], env)).toEqual({ vscode: '/opt/code', rest: [] });
  expect(desktopArguments(['a.test.ts', '--vscode', '/usr/bin/code', '-t', 'x'], env)).toEqual({
    vscode: '/usr/bin/code',
    rest: ['a.test.ts', '-t', 'x'],
  });
  expect(desktopArguments(['--vscode=/usr/bin/code'], {}).vscode).toBe('/usr/bin/code');
  expect(() => desktopArguments(['--vscode'], {})).toThrow('needs the path');
});

describe('what cannot be had is said in one sentence, with the next step', () => {
  test('no VS Code where one is named', async () => {
    const none = join(folder, 'none');
    const { message, next } = await refused(ensureDesktop(none, step));
    expect(message).toBe(`there is no VS Code at ${none}`);
    expect(next).toContain('--vscode');
    expect((await refused(ensureDesktop(folder, step))).message).toBe(`${folder} is no program`);
  });

  test('no internet to download one from', async () => {
    // Nobody listens there.
    vi.stubEnv('HTTPS_PROXY', 'http://127.0.0.1:1');
    vi.stubEnv('https_proxy', 'http://127.0.0.1:1');
    vi.stubEnv('XDG_CACHE_HOME', folder);
    const { message, next } = await refused(ensureDesktop(undefined, step));
    expect(message).toBe('VS Code cannot be downloaded');
    expect(next).toMatch(/^Run this where the internet can be reached, or name an installed one: npm run/);
  });

  test.runIf(process.platform === 'linux')('no display', () => {
    expect(() => checkDisplay({})).toThrow('needs a display');
    expect(() => checkDisplay({ DISPLAY: ':0' })).not.toThrow();
  });
});

test('a program that is there is taken', async () => {
  const program = join(folder, 'code');
  await writeFile(program, '#!/bin/sh\n');
  await chmod(program, 0o755);
  expect(await ensureDesktop(program, step)).toBe(program);
});
