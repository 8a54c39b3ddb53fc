import { describe, expect, test } from 'vitest';
import {
  CONFIGURATION_SUFFIXES,
  CONFIGURATION_NAMES,
  MARK_SUFFIX,
  isConfigurationName,
  markPath,
  parseDisplayPath,
  displayName,
  displayPath,
} from '../../../extension/files/configuration-paths.ts';

const NAMES = [
  ...Object.keys(CONFIGURATION_NAMES),
  ...Object.keys(CONFIGURATION_SUFFIXES).map((ending) => `team${ending}`),
];

describe('configuration names', () => {
  test.each(NAMES)('%s is marked, at any depth, and found again', (name) => {
    for (const path of [`/workspace/${name}`, `/workspace/a/${name}/b`, `/workspace/${name}/${name}`]) {
      const shown = displayPath(path);
      expect(shown.split('/').some((one) => NAMES.includes(one))).toBe(false);
      expect(parseDisplayPath(shown)).toEqual({ kind: 'path', path });
      expect(parseDisplayPath(path)).toEqual({ kind: 'configuration', name });
      expect(markPath(path)).toBe(shown);
      expect(markPath(shown)).toBe(shown);
    }
  });

  test.each([
    ['letter case', '.VSCode'],
    ['a dot at the end, which Windows drops', '.vscode.'],
    ['a space at the end', '.vscode '],
    ['an invisible character', '.vs\u200dcode'],
    ['full-width letters', '.ｖｓｃｏｄｅ'],
    ['one dot leader', '\u2024vscode'],
    ['the long s', '.v\u017fcode'],
    ['a control character', '.vscode\n'],
    ['the letter case of an ending', 'team.Code-Workspace'],
    ['an ending alone', '.code-workspace'],
    ['a dot after an ending', 'team.code-workspace.'],
  ])('are found behind %s', (_what, name) => {
    expect(isConfigurationName(name)).toBe(true);
    expect(parseDisplayPath(displayPath(`/workspace/${name}`))).toEqual({
      kind: 'path',
      path: `/workspace/${name}`,
    });
  });

  test.each(['vscode', '.vscodeignore', 'my.vscode', 'settings.json', 'mcp.json', 'workspace', 'a.code', ''])(
    '%j is none',
    (name) => {
      expect(displayName(name)).toBe(name);
    },
  );

  test('each name has exactly one display name, whatever files are called', () => {
    const names = [
      '.vscode',
      'readme.md',
      ...['.vscode', 'readme.md', '.VSCODE', 'x'].map((name) => name + MARK_SUFFIX),
    ];
    const paths = [...names, `.vscode${MARK_SUFFIX}${MARK_SUFFIX}`, MARK_SUFFIX].map(
      (name) => `/workspace/${name}`,
    );
    const shown = paths.map(displayPath);
    expect(new Set(shown).size).toBe(paths.length);
    expect(shown.map(parseDisplayPath)).toEqual(paths.map((path) => ({ kind: 'path', path })));
    expect(shown.slice(0, 4)).toEqual([
      `/workspace/.vscode${MARK_SUFFIX}`,
      '/workspace/readme.md',
      `/workspace/.vscode${MARK_SUFFIX}${MARK_SUFFIX}`,
      `/workspace/readme.md${MARK_SUFFIX}`,
    ]);
  });

  test('an unmarked configuration name below a marked one is refused too', () => {
    expect(parseDisplayPath(`/workspace/.vscode${MARK_SUFFIX}/.vscode`).kind).toBe('configuration');
  });

  test('only paths below /workspace are marked', () => {
    expect(displayPath('/.vscode/settings.json')).toBe('/.vscode/settings.json');
  });
});
