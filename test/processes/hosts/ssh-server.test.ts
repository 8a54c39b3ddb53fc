import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SSHD, SshServer } from '../../fixtures/hosts/ssh-server.ts';

test.skipIf(SSHD === undefined)(
  'a server of the tests whose port another one took meanwhile takes another port (needs sshd)',
  async ({ onTestFinished }) => {
    const other = await SshServer.start(SSHD ?? '');
    onTestFinished(() => other.stop());
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-sshd-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const late = join(folder, 'sshd');
    // The first time it gets the port of the other server.
    writeFileSync(
      late,
      `#!/bin/sh\nif mkdir '${folder}/once'; then exec '${SSHD}' -o Port=${other.port} "$@"; fi\nexec '${SSHD}' "$@"\n`,
      { mode: 0o755 },
    );
    const server = await SshServer.start(late);
    onTestFinished(() => server.stop());
    expect(server.port).not.toBe(other.port);
    const ssh = server.environment['HOLDFAST_SSH'] ?? '';
    const said = execFileSync(ssh, ['-p', String(server.port), '127.0.0.1', 'echo', 'hello'], {
      encoding: 'utf8',
    });
    expect(said).toBe('hello\n');
  },
);
