import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { SETUP_LOG_BYTES } from '../../../protocol/setup.ts';
import { SecretRedaction } from '../../../supervisor/setup/secret-search.ts';
import { readSetupLog, SetupLog } from '../../../supervisor/setup/setup-log.ts';

function logFile(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-setup-log-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return join(folder, 'log');
}

test('keeps what fits, says that there was more, and shows the end of the rest', () => {
  const path = logFile();
  const followed: Buffer[] = [];
  const log = SetupLog.create(path, { onKept: (bytes) => followed.push(bytes) });
  log.append(Buffer.alloc(SETUP_LOG_BYTES - 1, 'a'));
  log.append(Buffer.from('bcd\n'));
  log.append(Buffer.concat([Buffer.alloc(8 * 2 ** 20, 'x\n'), Buffer.from('the last line\n')]));
  log.close();
  const { text, truncated } = readSetupLog(path);
  expect(truncated).toBe(true);
  expect(text.subarray(SETUP_LOG_BYTES - 1).toString()).toBe('b\n[more output was not kept]\n');
  expect(log.lastLine).toBe('the last line');
  // Who follows it gets the same, and so no more than that.
  expect(Buffer.concat(followed).equals(text)).toBe(true);
});

test('keeps no secret, not even one that two streams print together', () => {
  const path = logFile();
  const redaction = new SecretRedaction([{ name: 'KEY', value: Buffer.from('a-key-of-a-kind') }]);
  const log = SetupLog.create(path, { redaction });
  log.appendOutput(Buffer.from('1 a-key-'), 'stdout');
  log.appendOutput(Buffer.from('other\n'), 'stderr');
  log.appendOutput(Buffer.from('of-a-kind\n2 '), 'stdout');
  log.append(Buffer.from('[network] denied: a-key-of-a-kind.example.com\n'));
  log.appendOutput(Buffer.from('3 a-key-'), 'stdout');
  log.appendOutput(Buffer.from('!'), 'stderr');
  log.flush();
  log.appendOutput(Buffer.from('a-key-of-a-kind'), 'stderr');
  log.close();
  const text = readSetupLog(path).text.toString();
  expect(text).not.toContain('a-key-of-a-kind');
  expect(text).toContain('1 other\n[secret KEY]\n2 [network] denied: [secret KEY].example.com\n');
});

test('keeps no half of a secret either, when a line of ours comes between', () => {
  const path = logFile();
  const followed: Buffer[] = [];
  const redaction = new SecretRedaction([{ name: 'KEY', value: Buffer.from('a-key-of-a-kind') }]);
  const log = SetupLog.create(path, { redaction, onKept: (bytes) => followed.push(Buffer.from(bytes)) });
  log.appendOutput(Buffer.from('1 a-key-'), 'stdout');
  log.append(Buffer.from('[network] denied\n'));
  log.appendOutput(Buffer.from('of-a-kind\n'), 'stdout');
  log.close();
  const expected = '1 [network] denied\n[secret KEY]\n';
  expect([readSetupLog(path).text.toString(), Buffer.concat(followed).toString()]).toEqual([
    expected,
    expected,
  ]);
});

test.skipIf(process.platform !== 'linux')('continues without a file when the disk is full', () => {
  const log = SetupLog.create('/dev/full');
  log.append(Buffer.from('first\n'));
  log.append(Buffer.from('second\n'));
  log.close();
  expect(log.lastLines).toBe('first / second');
});
