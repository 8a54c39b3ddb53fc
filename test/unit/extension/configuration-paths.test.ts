import { describe, expect, test } from 'vitest';
import {
  CONFIGURATION_ENDINGS,
  CONFIGURATION_NAMES,
  MARK,
  isConfigurationName,
  markedPath,
  realPath,
  shownName,
  shownPath,
} from '../../../extension/files/configuration-paths.ts';

const NAMES = [
  ...Object.keys(CONFIGURATION_NAMES),
  ...Object.keys(CONFIGURATION_ENDINGS).map((ending) => `team${ending}`),
];

describe('names of configuration', () => {
  test.each(NAMES)('%s is marked, at any depth, and found again', (name) => {
    for (const path of [`/workspace/${name}`, `/workspace/a/${name}/b`, `/workspace/${name}/${name}`]) {
      const shown = shownPath(path);
      expect(shown.split('/').some((one) => NAMES.includes(one))).toBe(false);
      expect(realPath(shown)).toEqual({ kind: 'path', path });
      expect(realPath(path)).toEqual({ kind: 'configuration', name });
      expect(markedPath(path)).toBe(shown);
      expect(markedPath(shown)).toBe(shown);
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
    expect(realPath(shownPath(`/workspace/${name}`))).toEqual({ kind: 'path', path: `/workspace/${name}` });
  });

  test.each(['vscode', '.vscodeignore', 'my.vscode', 'settings.json', 'mcp.json', 'workspace', 'a.code', ''])(
    '%j is none',
    (name) => {
      expect(shownName(name)).toBe(name);
    },
  );

  test('each name is shown in one way, whatever files are called', () => {
    const names = [
      '.vscode',
      'readme.md',
      ...['.vscode', 'readme.md', '.VSCODE', 'x'].map((name) => name + MARK),
    ];
    const paths = [...names, `.vscode${MARK}${MARK}`, MARK].map((name) => `/workspace/${name}`);
    const shown = paths.map(shownPath);
    expect(new Set(shown).size).toBe(paths.length);
    expect(shown.map(realPath)).toEqual(paths.map((path) => ({ kind: 'path', path })));
    expect(shown.slice(0, 4)).toEqual([
      `/workspace/.vscode${MARK}`,
      '/workspace/readme.md',
      `/workspace/.vscode${MARK}${MARK}`,
      `/workspace/readme.md${MARK}`,
    ]);
  });

  test('a name below a marked one is refused as well', () => {
    expect(realPath(`/workspace/.vscode${MARK}/.vscode`).kind).toBe('configuration');
  });

  test('only what is below /workspace has marks', () => {
    expect(shownPath('/.vscode/settings.json')).toBe('/.vscode/settings.json');
  });
});
