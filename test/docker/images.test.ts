import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
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

/** Runs a shell script in an image like a sandbox: an ordinary user, only /tmp is writable. */
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

/** The Dockerfile of docs/images.md, without what needs a network. */
const DERIVED = `FROM holdfast/agent:latest
USER root
COPY greet-1.0/ /tmp/greet-1.0/
RUN pip install --no-index --no-build-isolation /tmp/greet-1.0
USER agent
`;
const GREET = {
  'setup.py':
    'from setuptools import setup\nsetup(name="greet", version="1.0", py_modules=["greet"], entry_points={"console_scripts": ["greet = greet:main"]})\n',
  'greet.py': 'def main():\n    print("hello from greet")\n',
};

describe('the images that sandboxes run in', () => {
  test('pip installs a package offline into the home, and its program is on PATH', async () => {
    const files = Object.entries(GREET)
      .map(([name, text]) => `printf '%s' '${text}' > /tmp/src/${name}`)
      .join('; ');
    const lines = await inside(
      __AGENT_IMAGE__,
      `set -e; export HOME=/tmp/home; mkdir -p $HOME /tmp/src; ${files}
       pip install --quiet --no-index --no-build-isolation /tmp/src
       python3 -c 'import greet; print(greet.__file__)'; $HOME/.local/bin/greet`,
    );
    expect(lines.trim().split('\n')).toEqual([
      expect.stringMatching(/^\/tmp\/home\/\.local\/lib\/python3[.0-9]+\/site-packages\/greet\.py$/),
      'hello from greet',
    ]);
    const path = await inside(__AGENT_IMAGE__, 'echo $PATH');
    expect(path.split(':')[0]).toBe('/home/agent/.local/bin');
  });

  test('a compiler, make and patch work', async () => {
    const script = `set -e; cd /tmp; printf '#include <iostream>\nint main() { std::cout << "one" << std::endl; }\n' > a.cpp
      printf 'a: a.cpp\n\tg++ -o a a.cpp\n' > Makefile; make --silent; ./a
      printf -- '--- a.cpp\n+++ a.cpp\n@@ -1,2 +1,2 @@\n #include <iostream>\n-int main() { std::cout << "one" << std::endl; }\n+int main() { std::cout << "two" << std::endl; }\n' > p
      patch --quiet -p0 < p; make --silent; ./a; file --brief a | cut -d, -f1; gpg --version | head -n 1 | cut -d' ' -f1`;
    expect((await inside(__AGENT_IMAGE__, script)).trim().split('\n')).toEqual([
      'one',
      'two',
      expect.stringMatching(/^ELF 64-bit/),
      'gpg',
    ]);
  });

  test('a custom image can be based on the stable tag', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-derived-'));
    const tag = `holdfast-test-derived:${basename(folder).toLowerCase()}`;
    try {
      await mkdir(join(folder, 'greet-1.0'));
      await writeFile(join(folder, 'Dockerfile'), DERIVED);
      for (const [name, text] of Object.entries(GREET))
        await writeFile(join(folder, 'greet-1.0', name), text);
      const env = { ...process.env, DOCKER_BUILDKIT: '0' };
      await run('docker', ['build', '--network', 'none', '--tag', tag, folder], { env });
      expect(await inside(tag, 'greet; id -u nobody >/dev/null && command -v git')).toBe(
        'hello from greet\n/usr/bin/git\n',
      );
    } finally {
      await run('docker', ['image', 'rm', '--force', tag]).catch(() => undefined);
      await rm(folder, { recursive: true, force: true });
    }
  });

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

  test('the agent image has the usual tools of coding agents, and a user that owns the workspace', async () => {
    const script = `set -e
      for tool in bash curl file g++ gcc git gpg jq less make nano node npm npx patch pip3 ps python3 rg sqlite3 ssh tree unzip wget zip zstd; do command -v $tool >/dev/null; done
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

  test('a Chromium in the agent image would not encrypt the names that it asks for', async () => {
    const policy = await inside(__AGENT_IMAGE__, 'cat /etc/chromium/policies/managed/*');
    expect(JSON.parse(policy)).toEqual({ EncryptedClientHelloEnabled: false });
  });

  test('the agent image has no traces of the machine that built it', async () => {
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

  test('both images carry the label that identifies them', async () => {
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
