import assert from 'node:assert/strict';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { connectSupervisor } from '../../../protocol/client/connect.ts';
import { homeFromEnvironment } from '../../../protocol/home.ts';
import { ESCAPE, encodeName } from '../../../protocol/paths.ts';
import { runHoldfast } from './command-line.ts';
import { extension, waitUntil } from './extension.ts';
import { HARD_NAMES } from './hard-names.ts';
import { SESSION, sessionUri, runInSandbox } from './session.ts';
import { openTerminal, readScreen } from './terminal-window.ts';

const TREE = '/workspace/paths';
/** Stands in no name. */
const MARK = '\u001e';

/** Every name is a folder, and a file in it: names are hard at both places of a path. */
const SPELLED = HARD_NAMES.map(({ spelled }) => spelled);
const FOLDERS = SPELLED.map((name) => `${TREE}/${name}`).sort();
const PATHS = SPELLED.flatMap((name) => [`${TREE}/${name}`, `${TREE}/${name}/${name}`]).sort();

function run(command: string, ...args: readonly unknown[]): Thenable<unknown> {
  return vscode.commands.executeCommand(`holdfast.${command}`, SESSION, ...args);
}

async function turn<T>(input: unknown): Promise<T> {
  const { status, output } = (await run('runTurn', JSON.stringify(input))) as { status: string; output: T };
  assert.equal(status, 'succeeded');
  return output;
}

/** All that is below a folder of ours, as VS Code's file service gives it. */
async function walked(folder: vscode.Uri): Promise<vscode.Uri[]> {
  const all: vscode.Uri[] = [];
  for (const [name, type] of await vscode.workspace.fs.readDirectory(folder)) {
    const uri = folder.with({ path: `${folder.path}/${name}` });
    all.push(uri);
    if (type === vscode.FileType.Directory) all.push(...(await walked(uri)));
  }
  return all;
}

/** What *Copy Path* gives: the label that the editor shows of a file, all of it. */
async function label(uri: vscode.Uri): Promise<string> {
  await vscode.env.clipboard.writeText('');
  await vscode.commands.executeCommand('copyFilePath', uri);
  return vscode.env.clipboard.readText();
}

/** What a terminal was sent from its beginning on, until `end` has come. */
async function bytesOf(terminal: string, end: string): Promise<Buffer> {
  const home = homeFromEnvironment(process.env);
  const program = { name: 'paths', version: '0', build: '0', builtAt: 0 };
  const { peer, close } = await connectSupervisor({ home, program, start: 'never' });
  try {
    let all = Buffer.alloc(0);
    for (let offset = 0; !all.includes(end);) {
      const read = await peer.callWithBytes('terminal/read', { terminal, offset, waitMs: 10_000 });
      assert.ok(read.bytes.length > 0, `no more came after ${JSON.stringify(all.toString('utf8'))}`);
      all = Buffer.concat([all, read.bytes]);
      offset = read.result.offset + read.bytes.length;
    }
    return all;
  } finally {
    close();
  }
}

/** What `ls` means by a name that it has quoted for a shell, as it does for people. */
function unquoted(quoted: string): string {
  const escapes: Readonly<Record<string, string>> = { t: '\t', n: '\n', r: '\r', a: '\u0007', b: '\b' };
  const bytes: Buffer[] = [];
  const parts = /\$'((?:\\.|[^'\\])*)'|'([^']*)'|"([^"]*)"|\\(.)|([^'"\\])/gsu;
  for (const [, special, single, double, one, plain] of quoted.matchAll(parts)) {
    if (special === undefined) {
      bytes.push(Buffer.from(single ?? double ?? one ?? plain ?? ''));
      continue;
    }
    for (const [, octal, letter, text] of special.matchAll(/\\([0-7]{3})|\\(.)|([^\\])/gsu)) {
      if (octal !== undefined) bytes.push(Buffer.from([Number.parseInt(octal, 8)]));
      else bytes.push(Buffer.from(letter === undefined ? (text ?? '') : (escapes[letter] ?? letter)));
    }
  }
  return encodeName(Buffer.concat(bytes));
}

/** Needs a session whose handler makes and lists the tree (test/editor/paths.test.ts). */
export function definePaths(): void {
  describe('the path of a file with an unusual name', function () {
    this.timeout(120_000);
    let snapshot: string;

    before(async () => {
      await extension().activate();
      const first = (await run('createSnapshot', 'empty')) as string;
      assert.match(first, /^snp-/);
      await turn({ make: HARD_NAMES.map(({ hex }) => hex) });
      snapshot = (await run('createSnapshot', 'hard names')) as string;
      const { changes } = (await runHoldfast(['snapshot', 'diff', first, snapshot])) as {
        changes: { path: string; type: string }[];
      };
      const files = changes.filter(({ type }) => type === 'file').map(({ path }) => path);
      assert.deepEqual(
        files.sort(),
        PATHS.filter((path) => !FOLDERS.includes(path)),
      );
    });

    it('is the same in the handler', async () => {
      const seen = await turn<{ text: string | null; hex: string }[]>({ list: true });
      const spelled = seen.map(({ hex }) =>
        Buffer.from(hex, 'hex')
          .toString('latin1')
          .split('/')
          .map((name) => encodeName(Buffer.from(name, 'latin1')))
          .join('/'),
      );
      assert.deepEqual(spelled.sort(), PATHS);
      // Where the name is text to the handler, nothing is escaped at all.
      const texts = seen.flatMap(({ text }) => (text === null ? [] : [text]));
      const plain = HARD_NAMES.filter(({ isText }) => isText).map(({ spelled: name }) => `${TREE}/${name}`);
      assert.deepEqual(
        texts.filter((path) => path.split('/').length === 4 && !path.includes(ESCAPE)).sort(),
        plain.filter((path) => !path.includes(ESCAPE)).sort(),
      );
    });

    it('is the same in the Explorer’s folders, and opens that file', async () => {
      const all = await walked(sessionUri(TREE));
      assert.deepEqual(all.map(({ path }) => path).sort(), PATHS);
      for (const { hex, spelled } of HARD_NAMES) {
        const uri = sessionUri(`${TREE}/${spelled}/${spelled}`);
        assert.equal(Buffer.from(await vscode.workspace.fs.readFile(uri)).toString('utf8'), hex);
      }
    });

    it('is the same in the editor’s labels', async () => {
      const labels: string[] = [];
      for (const path of PATHS) labels.push(await label(sessionUri(path)));
      assert.deepEqual(labels, PATHS);
      for (const { hex, spelled } of HARD_NAMES) {
        const editor = await vscode.window.showTextDocument(sessionUri(`${TREE}/${spelled}/${spelled}`));
        assert.equal(editor.document.getText(), hex, spelled);
        assert.equal(editor.document.fileName, `${TREE}/${spelled}/${spelled}`);
        const tab = vscode.window.tabGroups.activeTabGroup.activeTab;
        assert.equal(tab?.label, spelled);
      }
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
    });

    it('is the same for the command line', async () => {
      const { entries } = (await runHoldfast(['workspace', 'ls', SESSION, TREE])) as {
        entries: { name: string }[];
      };
      assert.deepEqual(entries.map(({ name }) => `${TREE}/${name}`).sort(), FOLDERS);
    });

    it('is the same in a snapshot, in its folders and in its labels', async () => {
      const root = vscode.Uri.from({ scheme: 'holdfast-snapshot', authority: snapshot, path: TREE });
      assert.deepEqual((await walked(root)).map(({ path }) => path).sort(), PATHS);
      const labels: string[] = [];
      for (const path of PATHS) labels.push(await label(root.with({ path })));
      assert.deepEqual(labels, PATHS);
      for (const { hex, spelled } of HARD_NAMES) {
        const uri = root.with({ path: `${TREE}/${spelled}/${spelled}` });
        assert.equal(Buffer.from(await vscode.workspace.fs.readFile(uri)).toString('utf8'), hex);
      }
    });

    it('is the same for pwd in the terminal, byte by byte', async () => {
      const { id, shown } = await openTerminal();
      // Without what a terminal makes of a line's end.
      await runInSandbox(`cat > /workspace/walk.sh <<'END'
stty -opost
for folder in ${TREE}/* ${TREE}/.[!.]* ${TREE}/..?*; do cd -- "$folder" && pwd && printf '\\036'; done
stty opost
printf 'all of %s\\n' them
END`);
      shown.sendText("printf '\\036'; sh /workspace/walk.sh");
      const output = await bytesOf(id, 'all of them');
      const [, ...rest] = output.toString('latin1').split(MARK);
      const paths = rest
        .slice(0, -1)
        .map((path) => path.replace(/^.*?(?=\/workspace)/s, '').replace(/\n$/, ''))
        .map((path) => [TREE, encodeName(Buffer.from(path.slice(TREE.length + 1), 'latin1'))].join('/'));
      assert.deepEqual(paths.sort(), FOLDERS);
      shown.dispose();
      await runHoldfast(['terminal', 'close', id]);
    });

    it('is the same for ls on the screen, which quotes it for the shell', async () => {
      const { id, shown } = await openTerminal();
      shown.sendText(`clear; ls -A1 ${TREE}; echo end of "the list"`);
      const text = await waitUntil(
        'the list',
        async () => {
          const now = await readScreen(shown);
          return now.includes('\nend of the list') ? now : '';
        },
        30_000,
      );
      const lines = text.split(/\r?\n/);
      const names = lines
        .slice(0, lines.indexOf('end of the list'))
        .slice(-SPELLED.length)
        .map((line) => `${TREE}/${unquoted(line)}`);
      // VS Code's terminal leaves out byte order marks, and copies a no-break space as a space.
      const onScreen = FOLDERS.map((path) => path.replaceAll('\ufeff', '').replaceAll('\u00a0', ' '));
      assert.deepEqual(names.sort(), onScreen.sort());
      shown.dispose();
      await runHoldfast(['terminal', 'close', id]);
    });
  });
}
