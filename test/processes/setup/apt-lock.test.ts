import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { onPath } from '../../../scripts/setup/command.mjs';
import { canInstall, install } from '../../../scripts/setup/debian.mjs';

const CAN_RUN = canInstall() && onPath('python3') !== undefined;
const HOLD = `import fcntl, sys
lock = open(sys.argv[1], 'w')
fcntl.lockf(lock, fcntl.LOCK_EX)
print('held', flush=True)
sys.stdin.read()`;

/** Directories of apt's own, whose lock another process holds until \`release\`. */
async function lockedApt(): Promise<{ release: () => void }> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-apt-'));
  for (const name of ['lists/partial', 'cache/archives/partial'])
    mkdirSync(join(folder, name), { recursive: true });
  writeFileSync(
    join(folder, 'apt.conf'),
    [
      `Dir::State::Lists "${folder}/lists";`,
      `Dir::Cache "${folder}/cache";`,
      'Dir::Etc::SourceList "/dev/null";',
      'Dir::Etc::SourceParts "/dev/null";',
      '',
    ].join('\n'),
  );
  vi.stubEnv('APT_CONFIG', join(folder, 'apt.conf'));
  vi.stubEnv('HOLDFAST_HOME', join(folder, 'home'));
  const holder = spawn('python3', ['-c', HOLD, join(folder, 'lists/lock')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  onTestFinished(() => {
    holder.kill('SIGKILL');
    rmSync(folder, { recursive: true });
  });
  await once(holder.stdout, 'data');
  return { release: () => void holder.stdin.end() };
}

// A package that every Debian has: nothing is downloaded, and nothing changes.
test.skipIf(!CAN_RUN)('packages are installed once another run of apt has ended (needs root)', async () => {
  const { release } = await lockedApt();
  const shown: string[] = [];
  const installing = install(['coreutils'], { show: (text) => shown.push(text) });
  await expect
    .poll(() => shown)
    .toContain('waiting for another run of apt or dpkg, then installing coreutils');
  release();
  await installing;
});

test.skipIf(!CAN_RUN)('a lock that is never released gets one clear sentence (needs root)', async () => {
  await lockedApt();
  await expect(install(['coreutils'], { show: () => undefined, waitMs: 0 })).rejects.toMatchObject({
    message: 'coreutils cannot be installed: another run of apt or dpkg holds its lock',
  });
});
