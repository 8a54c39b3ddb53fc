import assert from 'node:assert/strict';
import { after, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension, waitUntil } from './extension.ts';
import { sessionUri, fileSystemErrorCode, runInSandbox, readText, writeText } from './session.ts';

const { fs } = vscode.workspace;
const { Directory, File, SymbolicLink, Unknown } = vscode.FileType;

/** What VS Code and its extensions count on in a provider of files, and what a hostile workspace must not reach. */
export function defineFileSystem(): void {
  describe('the files of a session', () => {
    before(async () => {
      await extension().activate();
      await runInSandbox('mkdir -p /workspace/fs/full && echo there > /workspace/fs/full/file');
    });
    after(() => runInSandbox('rm -rf /workspace/fs'));

    describe('stat', () => {
      it('returns type, real size and time of a file', async () => {
        await runInSandbox('printf 12345 > /workspace/fs/five && touch -d @1700000000 /workspace/fs/five');
        const { type, size, mtime, permissions } = await fs.stat(sessionUri('/workspace/fs/five'));
        assert.deepEqual([type, size, mtime, permissions], [File, 5, 1_700_000_000_000, undefined]);
        await writeText('/workspace/fs/five', 'six more');
        const later = await fs.stat(sessionUri('/workspace/fs/five'));
        assert.equal(later.size, 8);
        assert.ok(later.mtime > mtime);
      });

      it('distinguishes folders, files, and missing paths', async () => {
        assert.equal((await fs.stat(sessionUri('/workspace/fs'))).type, Directory);
        assert.equal((await fs.stat(sessionUri('/workspace/'))).type, Directory);
        assert.equal(await fileSystemErrorCode(fs.stat(sessionUri('/workspace/fs/none'))), 'FileNotFound');
        assert.equal(
          await fileSystemErrorCode(fs.stat(sessionUri('/workspace/fs/five/below-a-file'))),
          'FileNotADirectory',
        );
      });

      it('follows links inside the workspace, and recognizes dangling links and links out of it', async () => {
        await runInSandbox(
          'cd /workspace/fs && printf 123 > three && ln -sf three to-file && ln -sfn full to-folder && ln -sf nothing dangling && ln -sf /etc/passwd outside',
        );
        const file = await fs.stat(sessionUri('/workspace/fs/to-file'));
        assert.deepEqual([file.type, file.size], [File | SymbolicLink, 3]);
        assert.equal((await fs.stat(sessionUri('/workspace/fs/to-folder'))).type, Directory | SymbolicLink);
        assert.equal((await fs.stat(sessionUri('/workspace/fs/dangling'))).type, Unknown | SymbolicLink);
        assert.equal(
          await fileSystemErrorCode(fs.readFile(sessionUri('/workspace/fs/outside'))),
          'FileNotFound',
        );
      });

      it('reports a file as read-only that its owner may not write', async () => {
        await runInSandbox('echo fixed > /workspace/fs/fixed && chmod 444 /workspace/fs/fixed');
        const { permissions } = await fs.stat(sessionUri('/workspace/fs/fixed'));
        assert.equal(permissions, vscode.FilePermission.Readonly);
      });
    });

    describe('listing', () => {
      it('returns every entry once with its type', async () => {
        await runInSandbox(
          'mkdir -p /workspace/fs/list/folder && cd /workspace/fs/list && touch a && ln -sf a link && mkfifo pipe',
        );
        const entries = await fs.readDirectory(sessionUri('/workspace/fs/list'));
        assert.deepEqual(
          new Map(entries),
          new Map([
            ['a', File],
            ['folder', Directory],
            ['link', File | SymbolicLink],
            ['pipe', Unknown],
          ]),
        );
        assert.equal(entries.length, 4);
      });

      it('returns all entries of a folder with more than one page', async () => {
        await runInSandbox(
          'mkdir -p /workspace/fs/long && cd /workspace/fs/long && seq 1 5100 | xargs touch',
        );
        assert.equal(
          new Set((await fs.readDirectory(sessionUri('/workspace/fs/long'))).map(([name]) => name)).size,
          5100,
        );
      });

      it('fails for a missing path and for a file', async () => {
        assert.equal(
          await fileSystemErrorCode(fs.readDirectory(sessionUri('/workspace/fs/none'))),
          'FileNotFound',
        );
        assert.equal(
          await fileSystemErrorCode(fs.readDirectory(sessionUri('/workspace/fs/five'))),
          'FileNotADirectory',
        );
      });
    });

    describe('reading and writing', () => {
      it('preserve every byte', async () => {
        const bytes = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
        await fs.writeFile(sessionUri('/workspace/fs/bytes'), bytes);
        assert.ok(bytes.equals(await fs.readFile(sessionUri('/workspace/fs/bytes'))));
        assert.match(
          await runInSandbox('sha256sum < /workspace/fs/bytes'),
          /^40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880/,
        );
      });

      it('transfer files of more than one message in both directions', async () => {
        const large = Buffer.alloc(9 * 2 ** 20 + 7, 'holdfast ');
        await fs.writeFile(sessionUri('/workspace/fs/large'), large);
        assert.ok(large.equals(await fs.readFile(sessionUri('/workspace/fs/large'))));
      });

      it('create a missing file and the folders above it', async () => {
        await writeText('/workspace/fs/new/deep/file', 'made');
        assert.equal(await runInSandbox('cat /workspace/fs/new/deep/file'), 'made');
      });

      it('fail with the reason', async () => {
        assert.equal(
          await fileSystemErrorCode(fs.readFile(sessionUri('/workspace/fs/none'))),
          'FileNotFound',
        );
        assert.equal(await fileSystemErrorCode(fs.readFile(sessionUri('/workspace/fs'))), 'FileIsADirectory');
        assert.equal(
          await fileSystemErrorCode(fs.writeFile(sessionUri('/workspace/fs'), Buffer.from('x'))),
          'FileIsADirectory',
        );
        await runInSandbox('mkdir -p /workspace/fs/closed && chmod 555 /workspace/fs/closed');
        assert.equal(
          await fileSystemErrorCode(fs.writeFile(sessionUri('/workspace/fs/closed/x'), Buffer.from('x'))),
          'NoPermissions',
        );
      });

      it('refuse files that never end or are too large', async () => {
        await runInSandbox('mkfifo /workspace/fs/pipe && truncate -s 1T /workspace/fs/endless');
        assert.equal(await fileSystemErrorCode(fs.readFile(sessionUri('/workspace/fs/pipe'))), 'Unavailable');
        await assert.rejects(
          Promise.resolve(fs.readFile(sessionUri('/workspace/fs/endless'))),
          /1048576 MB.*limit.*50\.0 MB.*workspace cat/s,
        );
      });
    });

    describe('creating, moving, copying and deleting', () => {
      it('creates folders', async () => {
        await fs.createDirectory(sessionUri('/workspace/fs/made/in/one/go'));
        assert.equal((await fs.stat(sessionUri('/workspace/fs/made/in/one/go'))).type, Directory);
        assert.equal(
          await fileSystemErrorCode(fs.createDirectory(sessionUri('/workspace/fs/five'))),
          'FileExists',
        );
      });

      it('renames over an existing file only with overwrite', async () => {
        await writeText('/workspace/fs/from', 'from');
        await writeText('/workspace/fs/to', 'to');
        assert.equal(
          await fileSystemErrorCode(
            fs.rename(sessionUri('/workspace/fs/from'), sessionUri('/workspace/fs/to')),
          ),
          'FileExists',
        );
        assert.equal(await readText('/workspace/fs/to'), 'to');
        await fs.rename(sessionUri('/workspace/fs/from'), sessionUri('/workspace/fs/to'), {
          overwrite: true,
        });
        assert.equal(await readText('/workspace/fs/to'), 'from');
        assert.equal(await fileSystemErrorCode(fs.stat(sessionUri('/workspace/fs/from'))), 'FileNotFound');
        assert.equal(
          await fileSystemErrorCode(
            fs.rename(sessionUri('/workspace/fs/none'), sessionUri('/workspace/fs/x')),
          ),
          'FileNotFound',
        );
      });

      it('renames a folder with all of its content', async () => {
        await writeText('/workspace/fs/old/a/b', 'kept');
        await fs.rename(sessionUri('/workspace/fs/old'), sessionUri('/workspace/fs/moved'));
        assert.equal(await readText('/workspace/fs/moved/a/b'), 'kept');
      });

      it('copies files and folders', async () => {
        await writeText('/workspace/fs/tree/a/b', 'copied');
        await fs.copy(sessionUri('/workspace/fs/tree'), sessionUri('/workspace/fs/twin'));
        assert.equal(await readText('/workspace/fs/twin/a/b'), 'copied');
        assert.equal(await readText('/workspace/fs/tree/a/b'), 'copied');
        assert.equal(
          await fileSystemErrorCode(
            fs.copy(sessionUri('/workspace/fs/tree/a/b'), sessionUri('/workspace/fs/twin/a/b')),
          ),
          'FileExists',
        );
      });

      it('deletes a folder that is not empty only recursively', async () => {
        await assert.rejects(Promise.resolve(fs.delete(sessionUri('/workspace/fs/full'))));
        assert.equal(await readText('/workspace/fs/full/file'), 'there\n');
        await fs.delete(sessionUri('/workspace/fs/full'), { recursive: true });
        assert.equal(await fileSystemErrorCode(fs.stat(sessionUri('/workspace/fs/full'))), 'FileNotFound');
        assert.equal(await fileSystemErrorCode(fs.delete(sessionUri('/workspace/fs/full'))), 'FileNotFound');
      });

      it('deletes a link and not its target', async () => {
        await runInSandbox(
          'mkdir -p /workspace/fs/target && touch /workspace/fs/target/kept && ln -sfn target /workspace/fs/way',
        );
        await fs.delete(sessionUri('/workspace/fs/way'), { recursive: true });
        assert.equal((await fs.stat(sessionUri('/workspace/fs/target/kept'))).type, File);
      });
    });

    describe('the folder above the workspace', () => {
      it('shows the workspace and nothing else', async () => {
        assert.deepEqual(await fs.readDirectory(sessionUri('/')), [['workspace', Directory]]);
        for (const path of ['/.vscode/tasks.json', '/.vscode', '/etc/passwd', '/workspace/../etc/passwd']) {
          assert.equal(await fileSystemErrorCode(fs.stat(sessionUri(path))), 'FileNotFound', path);
        }
        // Served before the supervisor answers; the title comes with its answer.
        const names = async (): Promise<string[]> =>
          Object.keys(JSON.parse(await readText('/.vscode/settings.json')) as object);
        await waitUntil('the title', async () => (await names()).includes('window.title'));
        assert.deepEqual((await names()).slice(0, 2), ['window.title', 'git.enabled']);
      });

      it('cannot be written', async () => {
        assert.equal(
          await fileSystemErrorCode(fs.writeFile(sessionUri('/.vscode/settings.json'), Buffer.from('{}'))),
          'NoPermissions',
        );
        assert.equal(await fileSystemErrorCode(fs.createDirectory(sessionUri('/other'))), 'NoPermissions');
        assert.equal(
          await fileSystemErrorCode(fs.delete(sessionUri('/workspace'), { recursive: true })),
          'NoPermissions',
        );
        assert.equal(
          await fileSystemErrorCode(fs.rename(sessionUri('/workspace'), sessionUri('/elsewhere'))),
          'NoPermissions',
        );
      });

      it('belongs to an existing session', async () => {
        const nobody = sessionUri('/workspace').with({ authority: 'ses-aaaaaaaaaaaaaaaa' });
        assert.equal(await fileSystemErrorCode(fs.stat(nobody)), 'FileNotFound');
        assert.equal(
          await fileSystemErrorCode(fs.stat(nobody.with({ authority: 'not-a-session' }))),
          'FileNotFound',
        );
      });
    });

    it('transfers unusual names in both directions', async () => {
      const names = [
        'with space',
        'a%2fb',
        '#hash?',
        'back\\slash',
        'üñí',
        '日本',
        'tab\there',
        'quo\'te"',
        '..dots',
        '\u202egnp.exe',
        'caf␛e9',
      ];
      await runInSandbox(
        `mkdir -p /workspace/fs/hard && cd /workspace/fs/hard && touch 'with space' a%2fb '#hash?' 'back\\slash' üñí 日本 "$(printf 'tab\\there')" "quo'te\\"" ..dots "$(printf '\\342\\200\\256gnp.exe')" "$(printf 'caf\\351')"`,
      );
      const found = (await fs.readDirectory(sessionUri('/workspace/fs/hard'))).map(([name]) => name);
      assert.deepEqual(found.sort(), [...names].sort());
      for (const name of names) {
        const uri = vscode.Uri.joinPath(sessionUri('/workspace/fs/hard'), name);
        await fs.writeFile(uri, Buffer.from(name));
        assert.equal(Buffer.from(await fs.readFile(uri)).toString('utf8'), name);
        // As VS Code keeps it between windows.
        assert.equal((await fs.stat(vscode.Uri.parse(uri.toString()))).size, Buffer.byteLength(name));
      }
      assert.equal((await runInSandbox('ls -A /workspace/fs/hard | wc -l')).trim(), String(names.length));
    });

    it('reports the agent’s changes', async function () {
      const root = sessionUri('/');
      const isOpen = vscode.workspace.workspaceFolders?.some(({ uri }) => uri.toString() === root.toString());
      // VS Code watches what is open: in the other windows it would tell of nothing.
      if (isOpen !== true) this.skip();
      const seen: string[] = [];
      const watcher = vscode.workspace.createFileSystemWatcher(new vscode.RelativePattern(root, '**/*'));
      watcher.onDidCreate(({ path }) => seen.push(`created ${path}`));
      watcher.onDidChange(({ path }) => seen.push(`changed ${path}`));
      watcher.onDidDelete(({ path }) => seen.push(`deleted ${path}`));
      try {
        await runInSandbox('mkdir -p /workspace/fs/live && touch /workspace/fs/live/made');
        await waitUntil('created', () => seen.includes('created /workspace/fs/live/made'));
        await runInSandbox('echo more >> /workspace/fs/live/made');
        await waitUntil('changed', () => seen.includes('changed /workspace/fs/live/made'));
        await runInSandbox('rm /workspace/fs/live/made');
        await waitUntil('deleted', () => seen.includes('deleted /workspace/fs/live/made'));
      } finally {
        watcher.dispose();
      }
    });
  });
}
