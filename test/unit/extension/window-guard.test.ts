import { beforeEach, describe, expect, test, vi } from 'vitest';
import type { Memento, Uri } from 'vscode';
import type { CachedSettings } from '../../../extension/files/cached-settings.ts';
import { safeRoots } from '../../../extension/files/safe-roots.ts';
import { WindowGuard } from '../../../extension/files/window-guard.ts';

/** A fake window: what it has open, what the extension did to it, and what VS Code says when its folders change. */
interface FakeWindow {
  workspaceFile: unknown;
  folders: { uri: unknown; name: string }[];
  readonly done: string[];
  changed: () => void;
}
const fake = vi.hoisted((): FakeWindow => ({
  workspaceFile: undefined,
  folders: [],
  done: [],
  changed: () => undefined,
}));

vi.mock('vscode', () => ({
  FileSystemError: {
    NoPermissions: (message: string) => Object.assign(new Error(message), { code: 'NoPermissions' }),
  },
  commands: {
    executeCommand: (command: string, uri: unknown) => {
      fake.done.push(`${command} ${String(uri)}`);
      return Promise.resolve();
    },
  },
  window: { showWarningMessage: () => new Promise(() => undefined) },
  workspace: {
    get workspaceFile() {
      return fake.workspaceFile;
    },
    get workspaceFolders() {
      return fake.folders;
    },
    onDidChangeWorkspaceFolders: (listener: () => void) => {
      fake.changed = listener;
      return { dispose: () => undefined };
    },
    updateWorkspaceFolders: (from: number, count: number, ...added: { uri: unknown; name: string }[]) => {
      fake.done.push(`replaced ${count} from ${from}`);
      fake.folders.splice(from, count, ...added);
      return true;
    },
  },
}));

class FakeUri {
  readonly scheme: string;
  readonly authority: string;
  readonly path: string;

  constructor(text: string) {
    const [, scheme = '', authority = '', path = ''] = /^([^:]+):\/\/([^/]*)(.*)$/.exec(text) ?? [];
    this.scheme = scheme;
    this.authority = authority;
    this.path = path;
  }

  with({ path }: { readonly path: string }): FakeUri {
    return new FakeUri(`${this.scheme}://${this.authority}${path}`);
  }

  toString(): string {
    return `${this.scheme}://${this.authority}${this.path}`;
  }
}
const uri = (text: string): Uri => new FakeUri(text) as unknown as Uri;
const root = (text: string) => ({ uri: uri(text), name: text });
const isOurs = ({ scheme }: Uri): boolean => scheme.startsWith('holdfast');

const stored = new Map<string, unknown>();
const state: Memento = {
  keys: () => [...stored.keys()],
  get: (key: string) => stored.get(key),
  update: (key: string, value: unknown) => {
    stored.set(key, value);
    return Promise.resolve();
  },
};
const cachedSettings = {
  delete: (folders: readonly Uri[], files: readonly Uri[]) => {
    fake.done.push(`cleared ${[...folders, ...files].join(' ')}`);
    return Promise.resolve();
  },
} as unknown as CachedSettings;

function guardOf(workspaceFile: string | undefined, ...folders: string[]): WindowGuard {
  fake.workspaceFile = workspaceFile === undefined ? undefined : uri(workspaceFile);
  fake.folders = folders.map(root);
  return new WindowGuard(state, cachedSettings);
}
const code = (guard: WindowGuard): unknown => {
  try {
    guard.assertFilesAllowed();
    return 'allowed';
  } catch (error) {
    return (error as { code?: string }).code;
  }
};

beforeEach(() => {
  fake.done.length = 0;
  stored.clear();
});

describe('a window that was opened on', () => {
  test('a workspace file of the agent gets no file until the root of the session is open', async () => {
    const guard = guardOf(
      'holdfast://ses-a/workspace/team.code-workspace',
      'holdfast://ses-a/',
      'file:///mine',
    );
    expect(code(guard)).toBe('NoPermissions');
    await vi.waitFor(() => expect(fake.done).toHaveLength(2));
    // What VS Code remembers of it goes first, because the reopening ends this window.
    expect(fake.done).toEqual([
      'cleared holdfast://ses-a/ holdfast://ses-a/workspace/team.code-workspace',
      'vscode.openFolder holdfast://ses-a/',
    ]);
    // The person stayed in the window, and added the root: its configuration is still the agent's file.
    fake.folders = [root('holdfast://ses-a/')];
    fake.changed();
    expect(code(guard)).toBe('NoPermissions');
    guard.dispose();
    // The window that it was reopened as.
    const next = guardOf(undefined, 'holdfast://ses-a/');
    expect(code(next)).toBe('allowed');
    next.dispose();
  });

  test.each([
    'holdfast://ses-a/workspace',
    'holdfast://ses-a/workspace/sub',
    'holdfast-snapshot://snp-a/workspace',
  ])('%s gets no file, and opens the root', async (folder) => {
    const guard = guardOf(undefined, folder);
    expect(code(guard)).toBe('NoPermissions');
    const opened = `vscode.openFolder ${folder.replace(/workspace.*$/, '')}`;
    await vi.waitFor(() => expect(fake.done).toEqual([`cleared ${folder}`, opened]));
    guard.dispose();
  });

  test('a workspace file of the person with a folder of the agent has that folder replaced, and no file before', () => {
    const guard = guardOf('file:///mine/team.code-workspace', 'file:///mine', 'holdfast://ses-a/workspace');
    expect(code(guard)).toBe('NoPermissions');
    expect(fake.folders.map(({ uri: one }) => String(one))).toEqual(['file:///mine', 'holdfast://ses-a/']);
    fake.changed();
    expect(code(guard)).toBe('allowed');
    // A folder that is added later counts at once.
    fake.folders.push(root('holdfast://ses-b/workspace/x'));
    fake.changed();
    expect(code(guard)).toBe('NoPermissions');
    guard.dispose();
  });

  test.each([
    [],
    ['file:///mine'],
    ['holdfast://ses-a/'],
    ['holdfast://ses-a/', 'holdfast-snapshot://snp-a/'],
  ])('safe roots stays as it is', (...folders) => {
    const guard = guardOf(folders.length > 1 ? 'file:///mine/team.code-workspace' : undefined, ...folders);
    expect([code(guard), fake.done]).toEqual(['allowed', []]);
    guard.dispose();
  });
});

test('the roots that replace folders of agents show each session once and keep the order of the others', () => {
  const folders = [
    'file:///a',
    'holdfast://ses-a/',
    'holdfast://ses-a/workspace',
    'file:///b',
    'holdfast://ses-b/x',
  ];
  expect(safeRoots(uri('file:///mine.code-workspace'), folders.map(root), isOurs)).toMatchObject({
    ...{ kind: 'replace', from: 2, count: 3 },
    folders: [{ name: 'file:///b' }, { name: 'holdfast://ses-b/x', uri: { path: '/' } }],
  });
});
