import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { withBytes } from '../../../protocol/wire/shapes.ts';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';
import { type FakeHandlers, session, SESSION_ID } from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

const BUNDLE = 'a'.repeat(32);
const KEY = 'b'.repeat(64);
const HOME = 'c'.repeat(26);
const SNAPSHOT = 'snp-aaaaaaaaaaaaaaaa';
const snapshot = {
  ...{ id: SNAPSHOT, sessionId: SESSION_ID, createdAt: '2026-03-01T11:00:00.000Z' },
  ...{ reason: 'manual' as const, label: null, pinned: false, base: null },
  ...{ files: 2, directories: 1, bytes: 10, changedFiles: 1, changedBytes: 5, newBytes: 7 },
  ...{ scanMs: 3, frozenMs: 0, eventSeq: 4, turn: null, duringTurn: false },
  ...{ missing: 0, missingPaths: [], stateRoot: null },
};

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'holdfast-bundles-'));
  onTestFinished(() => rmSync(made, { recursive: true }));
  return made;
}

/** An export in three parts; the last one fails if asked for. */
function exporting(fails = false): FakeHandlers {
  let read = 0;
  return {
    'bundle/export': () => ({ bundle: BUNDLE, snapshot, keyId: KEY }),
    'bundle/read': () => {
      read += 1;
      if (fails && read === 3) throw new HoldfastError('snapshot_damaged', 'A part is damaged');
      return withBytes({ end: read === 3 }, Buffer.from(`part ${read} `));
    },
  };
}

test('an export is a new file with all of it', async () => {
  const file = join(folder(), 'a.tar.zst');
  const { home } = await startFakeSupervisor(exporting());
  const { code, stdout } = await runToEnd(['snapshot', 'export', 'default', file, '--json'], { home });
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toEqual({
    ...{ file, bytes: 21, sessionId: SESSION_ID, snapshotId: SNAPSHOT, keyId: KEY },
  });
  expect(readFileSync(file, 'utf8')).toBe('part 1 part 2 part 3 ');
  const again = await runToEnd(['snapshot', 'export', 'default', file], { home });
  expect(again.code).toBe(2);
  expect(again.stderr).toContain('exists already');
});

test('an export that fails leaves no file', async () => {
  const at = folder();
  const { home } = await startFakeSupervisor(exporting(true));
  const { code, stderr } = await runToEnd(['snapshot', 'export', SNAPSHOT, join(at, 'a')], { home });
  expect(code).toBe(1);
  expect(stderr).toMatch(/^error snapshot_damaged/);
  expect(readdirSync(at)).toEqual([]);
});

function importing(received: Buffer[], refuse: boolean): FakeHandlers {
  return {
    'bundle/import': ({ profile, name, key }) => {
      expect({ profile, name, key }).toEqual({ profile: 'counter', name: 'mine', key: KEY });
      return { bundle: BUNDLE };
    },
    'bundle/append': (_params, { bytes }) => {
      received.push(Buffer.from(bytes));
      if (refuse) throw new HoldfastError('snapshot_damaged', 'The session was not imported');
      return {};
    },
    'bundle/abort': () => {
      received.push(Buffer.from('aborted'));
      return {};
    },
    'bundle/commit': () => ({
      ...{ session: session(), snapshot, events: 7, contents: 1 },
      signedBy: { keyId: KEY, home: HOME, own: false },
    }),
  };
}

test('an import sends all of the file', async () => {
  const file = join(folder(), 'a.tar.zst');
  const bytes = Buffer.alloc(5 * 2 ** 20, 'some bytes, ');
  writeFileSync(file, bytes);
  const received: Buffer[] = [];
  const { home } = await startFakeSupervisor(importing(received, false));
  const line = ['snapshot', 'import', 'counter', file, '--name', 'mine', '--key', KEY, '--json'];
  const { code, stdout, stderr } = await runToEnd(line, { home });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(JSON.parse(stdout)).toMatchObject({
    ...{ sessionId: SESSION_ID, name: 'default', snapshotId: SNAPSHOT, events: 7 },
    signedBy: { keyId: KEY, home: HOME, own: false },
  });
  expect(Buffer.concat(received).equals(bytes)).toBe(true);
});

test('an import that is refused says why, and ends', async () => {
  const file = join(folder(), 'a.tar.zst');
  writeFileSync(file, 'hello');
  const received: Buffer[] = [];
  const { home } = await startFakeSupervisor(importing(received, true));
  const line = ['snapshot', 'import', 'counter', file, '--name', 'mine', '--key', KEY];
  const { code, stderr } = await runToEnd(line, { home });
  expect(code).toBe(1);
  expect(stderr).toMatch(/^error snapshot_damaged: The session was not imported/);
  expect(received.map(String)).toEqual(['hello', 'aborted']);
  expect((await runToEnd(['snapshot', 'import', 'counter', `${file}-no`], { home })).code).toBe(2);
});
