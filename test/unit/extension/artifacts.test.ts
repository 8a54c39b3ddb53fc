import { describe, expect, test } from 'vitest';
import { shownText, verifyContents } from '../../../extension/artifacts/artifact-text.ts';
import { patternOf, patternsIn } from '../../../extension/artifacts/patterns.ts';
import { rowsOf } from '../../../extension/artifacts/rows.ts';
import { documentPath } from '../../../extension/files/document-path.ts';
import { readArtifactFiles } from '../../../handoff/artifact-files.ts';
import type { Artifact } from '../../../protocol/artifacts.ts';
import { matchesPattern } from '../../../protocol/path-patterns.ts';
import { ARTIFACT, type Lies, PUBLIC_KEY, fakeSupervisor } from '../../fixtures/handoff/fake-artifact.ts';
import { keyPair } from '../../fixtures/manifest.ts';

const NOW = Date.parse('2026-01-02T00:00:00.000Z');
const SESSION = 'ses-aaaaaaaaaaaaaaaa';

function artifact(more: Partial<Artifact> = {}): Artifact {
  return {
    ...{ id: 'art-aaaaaaaaaaaaaaaa', kind: 'files', name: 'results', files: 3, bytes: 2048, leftOut: 0 },
    ...{ createdAt: '2026-01-01T22:00:00.000Z', session: SESSION, sessionName: 'default', profile: 'shell' },
    ...{ snapshot: 'snp-aaaaaaaaaaaaaaaa', sha256: '0'.repeat(64) },
    ...more,
  };
}

describe('the list of artifacts', () => {
  const known = new Set([SESSION]);
  const texts = (...args: Parameters<typeof rowsOf>): string[] =>
    rowsOf(...args).map((row) =>
      [row.label, 'description' in row ? row.description : '', 'detail' in row ? row.detail : '']
        .filter((text) => text !== '')
        .join(' | '),
    );

  test('has nothing while it loads, and where nothing is kept', () => {
    expect(rowsOf([{ host: 'local', state: 'loading' }], { known }, NOW)).toEqual([]);
    expect(rowsOf([{ host: 'local', state: 'listed', artifacts: [] }], { known }, NOW)).toEqual([]);
  });

  test('says what each is and where it is from, also when its session is deleted', () => {
    const artifacts = [
      artifact(),
      artifact({
        kind: 'patch',
        files: 1,
        session: 'ses-bbbbbbbbbbbbbbbb',
        sessionName: 'ses-bbbbbbbbbbbbbbbb',
      }),
    ];
    expect(texts([{ host: 'local', state: 'listed', artifacts }], { known }, NOW)).toEqual([
      'results | 3 files · 2 KB · 2 h | shell/default',
      'results | patch · 2 KB · 2 h | shell, ses-bbbbbbbbbbbbbbbb · the session is deleted',
    ]);
    // Nobody claims what is not known.
    expect(
      texts([{ host: 'local', state: 'listed', artifacts }], { known: undefined }, NOW).join(),
    ).not.toContain('deleted');
    const of = { of: SESSION, known };
    expect(texts([{ host: 'local', state: 'listed', artifacts }], of, NOW)).toHaveLength(1);
  });

  test('names the hosts where there are several, and those that are away', () => {
    const hosts = [
      { host: 'local', state: 'listed', artifacts: [artifact()] },
      { host: 'far', state: 'away', why: 'away since 10:00' },
      { host: 'empty', state: 'listed', artifacts: [] },
    ] as const;
    expect(texts(hosts, { known }, NOW)).toEqual([
      'This Machine',
      'results | 3 files · 2 KB · 2 h | shell/default',
      'far | away since 10:00',
    ]);
  });

  test('shows names that another machine chose as text', () => {
    const name = '\u202e$(trash) [x](command:y)\u001b[2J\n';
    const artifacts = [artifact({ name, sessionName: name, profile: 'p' })];
    const [row = ''] = texts([{ host: 'far', state: 'listed', artifacts }], { known }, NOW);
    expect(row).not.toMatch(/\p{C}|\$\(|\]\(/u);
  });
});

describe('the document of a file', () => {
  test.each([
    ['/workspace/.vscode/settings.json', '/workspace/.vscode (agent)/settings.json'],
    ['/workspace/a/x.code-workspace', '/workspace/a/x.code-workspace (agent)'],
    ['/workspace/.VSCODE/tasks.json', '/workspace/.VSCODE (agent)/tasks.json'],
    ['/workspace/package.json', '/workspace/package.json (agent)'],
    ['/workspace/a\u202etxt.exe', '/workspace/a\\u{202e}txt.exe'],
    ['/workspace/a\u0007', '/workspace/a\\u{7}'],
    ['/workspace/plain.txt', '/workspace/plain.txt'],
  ])('%j is named %j', (path, shown) => {
    expect(documentPath(path)).toBe(shown);
  });

  test('has the text, the beginning of a large one, and a sentence for anything else', () => {
    expect(shownText(Buffer.from('a\n'), 2)).toBe('a\n');
    const cut = shownText(Buffer.from('grün').subarray(0, 3), 5_000_000);
    expect(cut).toMatch(/^\[Holdfast: the first 3 bytes of 4\.8 MB\..*\]\ngr$/);
    expect(shownText(Buffer.from('a\0b'), 3)).toContain('not text');
  });
});

describe('the choice of files', () => {
  test('names a path and what is below it, and nothing else', () => {
    expect(patternOf('/workspace')).toBe('**');
    const odd = ['*', '**', 'a*b', 'd/**/e', 'a\\b', 'a\\*', '\\', 'a\\\\*'];
    const all = ['a.txt', 'd/e', '[x]', 'a?b', '-x', '.git', 'a', 'axb', 'd/x/e', ...odd];
    for (const path of all) {
      const pattern = patternOf(`/workspace/${path}`);
      expect(all.filter((one) => matchesPattern(pattern, one))).toEqual([path]);
      expect(matchesPattern(pattern, `${path}/below`)).toBe(true);
    }
    for (const path of ['\u241bff', ' a', 'a '])
      expect(() => patternOf(`/workspace/${path}`), path).toThrow('cannot be kept by its name');
  });

  test('takes patterns with commas between them', () => {
    expect(patternsIn(' dist, report of may.md,, ')).toEqual(['dist', 'report of may.md']);
    expect(patternsIn(' , ')).toEqual([]);
  });
});

describe('a verification', () => {
  const verified = async (lies: Lies = {}, publicKey = PUBLIC_KEY) => {
    const connection = fakeSupervisor({ a: 'one', 'b\u202e': 'two' }, lies);
    const contents = await readArtifactFiles(connection, ARTIFACT);
    return await verifyContents(connection, contents, { publicKey, keyOf: 'this machine' });
  };

  test('says that an artifact is what was kept', async () => {
    const { valid, text } = await verified();
    expect(valid).toBe(true);
    expect(text).toContain('Contents: 2 files');
    expect(text).toContain('Valid: signed with the key');
  });

  test.each<[string, Lies]>([
    ['another content', { contents: (bytes) => Buffer.alloc(bytes.length, 'x') }],
    ['fewer contents', { contents: (bytes) => bytes.subarray(0, 1) }],
  ])('finds %s, and names the files', async (_name, lies) => {
    const { valid, text } = await verified(lies);
    expect(valid).toBe(false);
    expect(text).toContain('NOT VALID: 2 files of 2');
    expect(text).not.toMatch(/[^\P{C}\n]/u);
  });

  test('finds a statement that another key signed', async () => {
    const { valid, text } = await verified({}, keyPair().pem);
    expect(valid).toBe(false);
    expect(text).toContain('NOT VALID for the key of this machine');
  });
});
