import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { METHODS, NOTIFICATIONS } from '../../../protocol/methods.ts';
import { SIDECAR_METHODS } from '../../../sidecar/wire.ts';
import { STORE_CALLS } from '../../../snapshot-format/sidecar-calls.ts';

const ROOT = join(import.meta.dirname, '../../..');
const FOLDERS = [
  ...[
    'bench',
    'cli',
    'docs',
    'egress-proxy',
    'examples',
    'extension',
    'handoff',
    'hosts',
    'images',
    'project',
  ],
  ...['protocol', 'scripts', 'sidecar', 'snapshot-format', 'supervisor', 'test', 'webview'],
];
const CODE = /\.(?:ts|tsx|mjs|cjs|sh|py)$/;
/** Names of the system that no code of ours has. */
const FOREIGN = new Set(['LD_PRELOAD']);
const CALLS = new Set([
  ...Object.keys(METHODS),
  ...Object.keys(NOTIFICATIONS),
  ...Object.keys(SIDECAR_METHODS),
  ...Object.keys(STORE_CALLS),
]);

/** All files and folders, below the root. Folders end with a slash. */
const paths = [
  ...readdirSync(ROOT, { withFileTypes: true }),
  ...FOLDERS.flatMap((folder) => readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true })),
].map((entry) => `${join(entry.parentPath, entry.name).slice(ROOT.length)}${entry.isDirectory() ? '/' : ''}`);

/** Programs, and the tests but these, which have names that nothing has. */
const sources = new Map(
  paths
    .filter((path) => (CODE.test(path) || path === '/package.json') && !path.startsWith('/test/unit/docs/'))
    .map((path) => [path, readFileSync(join(ROOT, path), 'utf8')]),
);
const words = new Set([...sources.values()].flatMap((source) => source.match(/[A-Za-z_]\w*/g) ?? []));

const pages = paths.filter((path) => path.endsWith('/README.md') && path !== '/README.md');

function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** What stands in backticks, without blocks of code. */
function quotedIn(text: string): string[] {
  const prose = text.replaceAll(/^```[\s\S]*?^```$/gm, '');
  return [...prose.matchAll(/`([^`]+)`/g)].map(([, quoted = '']) => quoted.replaceAll(/\s+/g, ' '));
}

/** `a/{b,c}.ts` as `a/b.ts` and `a/c.ts`. */
function expanded(path: string): string[] {
  const group = /\{([^{}]+)\}/.exec(path);
  if (group === null) return [path];
  return (group[1] ?? '').split(',').flatMap((one) => expanded(path.replace(group[0], one)));
}

/** Folders of the build, of a sandbox and of the store, which programs make. */
const MADE = /^(?:dist|run|incoming|packs)\//;

/** Whether it is written like a path of the checkout. */
function isPath(quoted: string): boolean {
  return /^[\w.-][\w./{},-]*(?:\.(?:tsx?|mjs|cjs|sh|py|md|css)|\/)$/.test(quoted) && !MADE.test(quoted);
}

function missingPaths(text: string): string[] {
  return quotedIn(text)
    .filter(isPath)
    .flatMap(expanded)
    .filter((path) => !paths.some((one) => one.endsWith(`/${path}`)));
}

/** Why nothing in the code has this name; null if something has, or if it is no name of the code. */
function problem(quoted: string): string | null {
  if (isPath(quoted) || CALLS.has(quoted) || FOREIGN.has(quoted)) return null;
  if (!/^#?[A-Za-z_]\w*(?:\.#?[A-Za-z_]\w*)*(?:\(\))?$/.test(quoted)) return null;
  const [first = '', ...rest] = quoted.replace('()', '').replaceAll('#', '').split('.');
  const unknown = [first, ...rest].find((word) => !words.has(word));
  if (unknown !== undefined) return `${quoted}: the code has no ${unknown}`;
  const [member] = rest;
  if (member === undefined || !/^[A-Z][a-z]/.test(first)) return null;
  const declares = new RegExp(`\\b(?:class|interface|type|const) ${first}\\b`);
  const hasMember = new RegExp(`^\\s+(?:readonly |async |static |get )*#?${member}\\b`, 'm');
  const isThere = [...sources.values()].some(
    (source) => source.includes(first) && declares.test(source) && hasMember.test(source),
  );
  return isThere ? null : `${quoted}: no ${first} has a ${member}`;
}

test('the check knows what is there and what is not', () => {
  expect(pages.length).toBeGreaterThan(10);
  expect(missingPaths('`protocol/methods.ts`, `sidecar/{files,watch}/`')).toEqual([]);
  expect(missingPaths('`protocol/methods.tsx`, `sidecar/{files,wacht}/`')).toEqual([
    'protocol/methods.tsx',
    'sidecar/wacht/',
  ]);
  expect(problem('FileWriter.commit')).toBeNull();
  expect(problem('FileWriter.submit')).not.toBeNull();
  expect(problem('FileWritter')).not.toBeNull();
});

test.each(['CONTRIBUTING.md', 'docs/architecture.md', ...pages])(
  'every file that %s names exists',
  (page) => {
    expect(missingPaths(read(page))).toEqual([]);
  },
);

describe('docs/architecture.md', () => {
  const text = read('docs/architecture.md');
  const section = (from: string, to: string): string =>
    text.slice(text.indexOf(`## ${from}`), text.indexOf(`## ${to}`));

  test.each([
    ['Before a session is used', 'A save in the editor'],
    ['A save in the editor', 'A turn'],
    ['A turn', 'A snapshot'],
    ['A snapshot', 'A restore'],
    ['A restore', 'The home'],
    ['States and dispatch', 'Who owns the files'],
  ])('every name in “%s” is one of the code', (from, to) => {
    const quoted = quotedIn(section(from, to));
    expect(quoted.length).toBeGreaterThan(5);
    expect(quoted.map(problem).filter((one) => one !== null)).toEqual([]);
  });

  test('every call in a diagram is one of the code', () => {
    const diagrams = [...text.matchAll(/^```mermaid[\s\S]*?^```$/gm)].map(([block]) => block).join('\n');
    const calls = diagrams.match(/\b(?:files|session|snapshot|store|turn)\/[a-z]+(?:-[a-z]+)*\b/g) ?? [];
    expect(calls.length).toBeGreaterThan(10);
    expect(calls.filter((call) => !CALLS.has(call))).toEqual([]);
  });

  test('the glossary has at most 40 rows', () => {
    const rows = section('Glossary', 'Processes').match(/^\| .*$/gm) ?? [];
    expect(rows.length - 1).toBeGreaterThan(30);
    expect(rows.length - 1).toBeLessThanOrEqual(40);
  });
});

test.each(['CONTRIBUTING.md', ...pages])('every name in %s is one of the code', (page) => {
  expect(
    quotedIn(read(page))
      .map(problem)
      .filter((one) => one !== null),
  ).toEqual([]);
});

test('lines of prose wrap at 120 characters', () => {
  const all = [
    ...paths.filter((path) => path.startsWith('/docs/') && path.endsWith('.md')),
    ...pages,
    '/CONTRIBUTING.md',
  ];
  const long = all.flatMap((page) => {
    const prose = read(page).replaceAll(/^```[\s\S]*?^```$/gm, (block) => block.replaceAll(/.+/g, ''));
    return (
      prose
        .split('\n')
        .map((line, at) => ({ line, where: `${page.slice(1)}:${String(at + 1)}` }))
        // Tables cannot wrap, and an address does not.
        .filter(({ line }) => line.length > 120 && !/^\s*[|<]/.test(line) && !/\S{90}/.test(line))
    );
  });
  expect(long.map(({ where }) => where)).toEqual([]);
});
