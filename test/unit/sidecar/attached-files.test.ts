import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { AttachedFiles } from '../../../sidecar/turns/attached-files.ts';

const TURN = 'turn-aaaaaaaaaaaaaaaa';

test.each([
  ['one after the other', [0, 0, 1, 1]],
  ['the other way round', [1, 1, 0, 0]],
  ['in turns', [0, 1, 0, 1]],
])('files whose names look unfinished do not take each other’s place: %s', (_, order) => {
  const run = mkdtempSync(join(tmpdir(), 'holdfast-attached-'));
  onTestFinished(() => rmSync(run, { recursive: true }));
  const files = new AttachedFiles(run);
  onTestFinished(() => files.close());
  const names = ['x', '.new-x'];
  const written = [0, 0];
  for (const which of order) {
    const name = names[which] ?? '';
    const offset = written[which] ?? 0;
    const bytes = Buffer.from(`${offset}${name}`);
    const part = { turnId: TURN, name, offset, total: 2 * bytes.length };
    written[which] = files.write(part, bytes);
    expect(written[which]).toBe(offset + bytes.length);
  }
  const folder = join(run, 'attachments', TURN);
  expect(readdirSync(folder).toSorted()).toEqual(names.toSorted());
  expect(names.map((name) => readFileSync(join(folder, name), 'utf8'))).toEqual(['0x2x', '0.new-x7.new-x']);
});
