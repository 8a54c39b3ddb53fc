import { writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { SearchLine, SearchParams, SearchSummary } from '../../protocol/search.ts';
import type { FilesConnection } from '../../supervisor/workspace/files-connection.ts';
import { soakCount } from '../setup/run-length.ts';
import { connectFiles } from './connect-files.ts';
import { ContainerPairs, type ContainerPair } from './container-pair.ts';

let bench: ContainerPairs;
let pair: ContainerPair;
let files: FilesConnection;
beforeAll(async () => {
  bench = await ContainerPairs.create();
  pair = await bench.createPair();
  files = await connectFiles(pair);
});
afterAll(async () => {
  files.close();
  await bench.dispose();
});
afterEach(async () => {
  await sh('find /workspace -mindepth 1 -delete');
});

async function sh(script: string): Promise<string> {
  const { exitCode, output } = await pair.runInAgent(['bash', '-c', `cd /workspace && ${script}`]);
  if (exitCode !== 0) throw new Error(output);
  return output;
}

async function search(params: SearchParams): Promise<{ lines: SearchLine[]; summary: SearchSummary }> {
  const { result } = await files.call('files/search-open', params);
  const lines: SearchLine[] = [];
  for (;;) {
    const { result: page } = await files.call('files/search-next', { search: result.search, waitMs: 10_000 });
    lines.push(...page.lines);
    if (page.summary !== null) return { lines, summary: page.summary };
  }
}
const places = ({ lines }: { lines: SearchLine[] }) =>
  lines.map(({ path, line }) => `${path}:${String(line)}`).sort();

describe('text', () => {
  test('sorted by path stops at the same line each time', async () => {
    await sh('for d in b a c; do mkdir $d; for f in 3 1 2; do printf "hit\\nhit\\n" > $d/$f; done; done');
    const sorted = [];
    for (let round = 0; round < 5; round += 1) {
      const { lines, summary } = await search({ pattern: 'hit', sort: 'path', limit: 7 });
      expect(summary.stopped).toBe('limit');
      sorted.push(lines.map(({ path, line }) => `${path}:${String(line)}`));
    }
    expect(sorted[0]).toEqual(
      ['a/1:1', 'a/1:2', 'a/2:1', 'a/2:2', 'a/3:1', 'a/3:2', 'b/1:1'].map((place) => `/workspace/${place}`),
    );
    for (const one of sorted) expect(one).toEqual(sorted[0]);
  });

  test('a regular expression, with columns as editors count them', async () => {
    await sh(
      `mkdir src && printf 'one\\n  \\xf0\\x9f\\x98\\x80\\xc3\\xa9 find me and find me\\r\\n' > src/a.txt && echo nothing > b.txt`,
    );
    const { lines, summary } = await search({ pattern: 'f[a-z]+d me' });
    expect(lines).toEqual([
      {
        path: '/workspace/src/a.txt',
        kind: 'match',
        line: 2,
        preview: '  😀é find me and find me',
        previewStart: 0,
        ranges: [
          { start: 6, end: 13 },
          { start: 18, end: 25 },
        ],
      },
    ]);
    expect(summary).toEqual({ matches: 1, files: 1, stopped: null, skipped: 0 });
  });

  test('options: fixed, case, word, context, globs, hidden and ignored files, a folder', async () => {
    await sh(
      `mkdir d .h && printf 'a.b\\naXb\\nA.B\\na.bc\\n' > d/f.txt && cp d/f.txt d/f.md && cp d/f.txt .h/f.txt && cp d/f.txt d/skip.txt && echo skip.txt > .gitignore`,
    );
    expect(
      places(await search({ pattern: 'a.b', syntax: 'fixed', letterCase: 'exact', path: '/workspace/d' })),
    ).toEqual([
      '/workspace/d/f.md:1',
      '/workspace/d/f.md:4',
      '/workspace/d/f.txt:1',
      '/workspace/d/f.txt:4',
      '/workspace/d/skip.txt:1',
      '/workspace/d/skip.txt:4',
    ]);
    // As in ripgrep, what is asked for by a glob is looked at although it is ignored.
    expect(places(await search({ pattern: 'aXb' }))).toEqual(['/workspace/d/f.md:2', '/workspace/d/f.txt:2']);
    expect(places(await search({ pattern: 'aXb', include: ['skip.*'] }))).toEqual([
      '/workspace/d/skip.txt:2',
    ]);
    expect(
      places(await search({ pattern: 'A.b', letterCase: 'ignore', word: true, exclude: ['*.txt'] })),
    ).toEqual(['/workspace/d/f.md:1', '/workspace/d/f.md:2', '/workspace/d/f.md:3']);
    expect(
      places(await search({ pattern: 'aXb', ignoreFiles: false, hidden: true, include: ['*.txt'] })),
    ).toEqual(['/workspace/.h/f.txt:2', '/workspace/d/f.txt:2', '/workspace/d/skip.txt:2']);
    const { lines } = await search({
      pattern: 'aXb',
      before: 1,
      after: 1,
      path: '/workspace/d',
      include: ['*.md'],
    });
    expect(lines.map(({ kind, line }) => `${kind} ${String(line)}`)).toEqual([
      'context 1',
      'match 2',
      'context 3',
    ]);
  });

  test('nothing in a pattern, glob or environment is taken for an option', async () => {
    await sh(
      `echo '--pre=/bin/sh -f x' > a; printf -- '--pre\\n/workspace/evil\\n' > .ripgreprc; printf '#!/bin/sh\\necho pwned > /workspace/pwned\\n' > evil; chmod +x evil`,
    );
    expect(
      places(await search({ pattern: '--pre=/bin/sh', include: ['-a', '--pre=/workspace/evil', 'a'] })),
    ).toEqual(['/workspace/a:1']);
    expect(await sh('ls')).not.toContain('pwned');
    await expect(search({ pattern: '(' })).rejects.toMatchObject({
      code: 'invalid_params',
      why: expect.stringContaining('unclosed group') as string,
    });
    await expect(search({ pattern: 'x', path: '/workspace/none' })).rejects.toMatchObject({
      code: 'file_not_found',
    });
  });

  test('names that are no UTF-8, and lines that are none', async () => {
    await sh(
      `printf 'x\\xff needle \\xfe\\n' > "$(printf 'n\\xff')"; echo needle > ./-rf; echo needle > "$(printf 'a\\nb')"`,
    );
    const { lines } = await search({ pattern: 'needle' });
    expect(lines.map(({ path }) => path).sort()).toEqual([
      '/workspace/-rf',
      '/workspace/a\nb',
      '/workspace/n\u241bff',
    ]);
    expect(lines.find(({ path }) => path.endsWith('ff'))).toMatchObject({ ranges: [{ start: 3, end: 9 }] });
  });

  test('FIFOs, sockets, link loops, links out, sparse and endless lines do not hold it up', async () => {
    await sh(`mkfifo fifo; ln -s . loop; ln -s /etc/passwd out; ln -s / root; truncate -s 1T sparse; python3 -c "
import socket; socket.socket(socket.AF_UNIX).bind('socket')
open('line','w').write('needle' + 'x' * 6_000_000)
open('good','w').write('needle and root')"`);
    const began = performance.now();
    const { lines, summary } = await search({ pattern: 'needle|root' });
    expect(lines.map(({ path }) => path)).toEqual(['/workspace/good']);
    expect(summary.skipped).toBe(1);
    expect(performance.now() - began).toBeLessThan(20_000);
  });

  test('it goes no deeper than ripgrep can, and comes back', async () => {
    await sh(`python3 -c "
import os
for n in range(3000):
    os.mkdir('d'); os.chdir('d')
    if n % 500 == 0: open('f', 'w').write('needle')
"`);
    const { lines } = await search({ pattern: 'needle' });
    expect(lines.length).toBeGreaterThan(0);
    await sh('mv d x; rm -rf x');
  });

  test('a limit, a time limit, and a search that nobody follows any more', async () => {
    await sh(`seq -f 'needle %g' 50000 > many; python3 -c "open('slow','w').write('a' * 15_000_000)"`);
    const { lines, summary } = await search({ pattern: 'needle', limit: 10 });
    expect(lines).toHaveLength(10);
    expect(summary).toMatchObject({ matches: 10, stopped: 'limit' });
    expect((await search({ pattern: 'needle', timeLimitMs: 1, limit: 100_000 })).summary.stopped).toBe(
      'time',
    );
    expect((await search({ pattern: 'needle', limit: 100_000 })).lines).toHaveLength(50_000);

    const other = await connectFiles(pair);
    await other.call('files/search-open', { pattern: 'needle', limit: 100_000 });
    await expect.poll(running).toBe(1);
    other.close();
    await expect.poll(running).toBe(0);
  });

  test('while the agent swaps folders for links to what only the sidecar sees, nothing of that is reported', async () => {
    writeFileSync(pair.path('control/secret'), 'canary needle\n', { mode: 0o666 });
    await sh(`mkdir -p s/d && echo 'inside needle' > s/d/secret && ln -s /ctl s/l`);
    const attack = pair.runInAgent([
      'python3',
      '-c',
      `import ctypes, os, time
libc = ctypes.CDLL(None)
os.chdir('/workspace/s')
end = time.time() + 150
n = 0
while time.time() < end and not os.path.exists('/workspace/stop'):
    for _ in range(100): libc.syscall(316, -100, b'd', -100, b'l', 2); n += 1
print(n)`,
    ]);
    let told = 0;
    let skipped = 0;
    const began = performance.now();
    const isEnough = (round: number) => round >= soakCount(40, 400) && told > 0 && skipped > 0;
    for (
      let round = 0;
      !isEnough(round) && performance.now() - began < soakCount(30_000, 120_000);
      round += 1
    ) {
      const { lines, summary } = await search({ pattern: 'needle', hidden: true });
      for (const { preview } of lines) expect(preview).toBe('inside needle');
      told += lines.length;
      skipped += summary.skipped;
      const { result } = await files.call('files/find', { query: 'sock' });
      expect(result.paths).toEqual([]);
    }
    await sh('touch stop');
    await attack;
    expect(told).toBeGreaterThan(0);
    // Some were caught in the act, or this proves nothing.
    expect(skipped).toBeGreaterThan(0);
  }, 180_000);
});

async function running(): Promise<number> {
  return (await pair.sidecarProcesses()).filter((columns) =>
    columns.some((text) => text.includes('rg --no-config') || text.endsWith('/rg')),
  ).length;
}

describe('names', () => {
  test('the best first; letters in order; not through links', async () => {
    await sh(
      `mkdir -p src/config lib; touch src/config/main.ts lib/config.ts lib/xconfigx lib/c_o_n_f_i_g other .hidden-config; ln -s /etc etc`,
    );
    const find = async (query: string, more = {}) =>
      (await files.call('files/find', { query, ...more })).result;
    expect(await find('config')).toEqual({
      paths: [
        '/workspace/lib/config.ts',
        '/workspace/lib/xconfigx',
        '/workspace/src/config/main.ts',
        '/workspace/lib/c_o_n_f_i_g',
      ],
      more: false,
    });
    expect(await find('', { limit: 2 })).toMatchObject({ more: true });
    expect((await find('passwd')).paths).toEqual([]);
    expect((await find('hidden', { hidden: true })).paths).toEqual(['/workspace/.hidden-config']);
  });
});

describe('usage', () => {
  test('the biggest folders first, files with several names once', async () => {
    await sh(
      `mkdir -p a/b/c/d/e z; head -c 1000 /dev/zero > a/b/f; head -c 500 /dev/zero > a/b/c/d/e/f; ln a/b/f z/same; head -c 10 /dev/zero > z/g; ln -s /etc z/link`,
    );
    const { result } = await files.call('files/usage', { depth: 2 });
    expect(result).toMatchObject({ bytes: 1510, files: 5, directories: 6 });
    const byPath = new Map(result.folders.map(({ path, bytes, files: count }) => [path, [bytes, count]]));
    expect([...byPath.keys()].sort()).toEqual(['/workspace/a', '/workspace/a/b', '/workspace/z']);
    expect((byPath.get('/workspace/a')?.[0] ?? 0) + (byPath.get('/workspace/z')?.[0] ?? 0)).toBe(1510);
    expect(result.folders[0]?.bytes).toBe(Math.max(...result.folders.map(({ bytes }) => bytes)));
    const { result: below } = await files.call('files/usage', { path: '/workspace/a/b/c', limit: 1 });
    expect(below).toMatchObject({
      bytes: 500,
      folders: [{ path: '/workspace/a/b/c/d', bytes: 500, files: 1 }],
    });
  });
});
