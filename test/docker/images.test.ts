import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';

const run = promisify(execFile);
const HARDENED = [
  '--network',
  'none',
  '--read-only',
  '--cap-drop',
  'ALL',
  '--security-opt',
  'no-new-privileges',
];

/** Runs a shell script in an image the way sandboxes run: an ordinary user, nothing writable but /tmp. */
async function inside(image: string, script: string): Promise<string> {
  const args = [
    '--rm',
    ...HARDENED,
    '--user',
    '1234:1234',
    '--tmpfs',
    '/tmp:exec,mode=1777',
    '-e',
    'HOME=/tmp',
  ];
  const { stdout } = await run('docker', ['run', ...args, '--entrypoint', '/bin/sh', image, '-c', script]);
  return stdout;
}

describe('the images that sandboxes run in', () => {
  test('the sidecar image has Node 24, a static busybox and ripgrep, and no package manager or compiler', async () => {
    const script = `node --version; rg --version | head -n 1; busybox | head -n 1
      for tool in apt python3 gcc curl; do command -v $tool; done; true`;
    const lines = (await inside(__SIDECAR_IMAGE__, script)).trim().split('\n');
    expect(lines).toEqual([
      expect.stringMatching(/^v24\./),
      expect.stringMatching(/^ripgrep /),
      expect.stringMatching(/^BusyBox /),
    ]);
  });

  test('the agent image has what coding agents reach for, and a user whose workspace it is', async () => {
    const script = `set -e
      for tool in bash curl git jq less ssh ps python3 pip3 rg sqlite3 zstd node npm npx; do command -v $tool >/dev/null; done
      node --version
      git init --quiet /tmp/repository
      python3 -m venv /tmp/venv && /tmp/venv/bin/pip --version >/dev/null
      npm --version >/dev/null
      stat -c '%u %g' /workspace
      getent passwd agent`;
    const lines = (await inside(__AGENT_IMAGE__, script)).trim().split('\n');
    expect(lines).toEqual([
      expect.stringMatching(/^v24\./),
      '1000 1000',
      'agent:x:1000:1000::/home/agent:/bin/bash',
    ]);
  });

  test('nothing of the machine that built the agent image is in it', async () => {
    const { stdout } = await run('docker', ['create', '--network', 'none', __AGENT_IMAGE__]);
    const id = stdout.trim();
    try {
      for (const path of ['/etc/hostname', '/etc/resolv.conf']) {
        const file = await run('sh', ['-c', `docker cp ${id}:${path} - | tar -xO`]);
        expect(file.stdout).toBe('');
      }
    } finally {
      await run('docker', ['rm', '-f', id]);
    }
  });

  test('both carry the label by which they are found again', async () => {
    for (const image of [__SIDECAR_IMAGE__, __AGENT_IMAGE__]) {
      const { stdout } = await run('docker', [
        'image',
        'inspect',
        image,
        '--format',
        '{{json .Config.Labels}}',
      ]);
      expect(JSON.parse(stdout)).toEqual({
        'dev.holdfast.image': image.replace('holdfast/', '').replace(':', '-'),
      });
    }
  });
});
