import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { pack } from 'tar-stream';
import { expect, onTestFinished, test } from 'vitest';
import type { Archive } from '../../../hosts/far/archives.ts';
import { prepare } from '../../../hosts/far/preparation.ts';

/** A fake Node: a script in the place of the program. */
async function nodeThat(script: string): Promise<Archive> {
  const tar = pack();
  tar.entry({ name: 'package/bin/node', mode: 0o755 }, script);
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(chunk as Buffer);
  const bytes = gzipSync(Buffer.concat(chunks));
  return { bytes, sha256: createHash('sha256').update(bytes).digest('hex') };
}

/** As on a machine whose glibc is too old. */
const TOO_OLD = `#!/bin/sh
echo "node: /lib/libc.so.6: version GLIBC_2.28 not found (required by node)" >&2
exit 1
`;

test('a Node that cannot run on the machine is refused with its reason, and is not kept', async () => {
  const home = mkdtempSync(join(tmpdir(), 'holdfast-preparation-'));
  const shell = spawn('sh', [], { env: { PATH: '/usr/bin:/bin', HOLDFAST_HOME: home }, stdio: 'pipe' });
  onTestFinished(() => {
    shell.kill('SIGKILL');
    rmSync(home, { recursive: true });
  });
  const node = await nodeThat(TOO_OLD);
  const failure = await prepare({
    host: { name: 'far', destination: 'ssh://far.example.com', addedAt: '2026-11-23T00:00:00Z' },
    output: shell.stdout,
    input: shell.stdin,
    build: '0123456789abcdef',
    nodeVersion: '99.0.0',
    program: () => Promise.reject(new Error('not asked for before Node is there')),
    node: () => Promise.resolve(node),
    onStage: () => undefined,
  }).catch((error: unknown) => error);
  expect(failure).toMatchObject({
    message: 'Holdfast cannot be brought to far',
    why: 'the Node that was sent cannot run there, install Node 24 on it: node: /lib/libc.so.6: version GLIBC_2.28 not found (required by node)',
  });
  expect(readdirSync(join(home, 'bin'))).toEqual([]);
});
