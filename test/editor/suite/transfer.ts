import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, readdir, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { extension } from './extension.ts';
import { sessionUri, runInSandbox } from './session.ts';

const { fs } = vscode.workspace;

/** Copies: in a workspace, out of it, into it. */
export function defineTransfer(): void {
  describe('copies of files', () => {
    let local = '';
    before(async () => {
      await extension().activate();
      local = await mkdtemp(join(tmpdir(), 'holdfast-transfer-'));
      await runInSandbox(
        'mkdir -p /workspace/copies/d && cd /workspace/copies/d && echo run > run && chmod 755 run && ln -s run link && ln -s /etc/passwd out && mkdir .git && echo x > .git/config',
      );
    });
    after(async () => {
      await rm(local, { recursive: true, force: true });
      await runInSandbox('rm -rf /workspace/copies');
    });

    it('within a workspace keep execute bits and links', async () => {
      await fs.copy(sessionUri('/workspace/copies/d'), sessionUri('/workspace/copies/d2'));
      await fs.copy(sessionUri('/workspace/copies/d/run'), sessionUri('/workspace/copies/run'));
      await fs.copy(sessionUri('/workspace/copies/d/link'), sessionUri('/workspace/copies/link'));
      assert.equal(
        await runInSandbox('cd /workspace/copies && stat -c "%a %N" d2/run d2/link run link'),
        "755 'd2/run'\n777 'd2/link' -> 'run'\n755 'run'\n777 'link' -> 'run'\n",
      );
    });

    it('out of a workspace keep execute bits and links inside the folder', async () => {
      const uri = sessionUri('/workspace/copies/d');
      const report = await vscode.commands.executeCommand('holdfast.exportFiles', uri, [uri], local, 'skip');
      assert.deepEqual((await readdir(join(local, 'd'))).sort(), ['link', 'run']);
      assert.equal((await stat(join(local, 'd/run'))).mode & 0o111, 0o111);
      assert.equal(await readlink(join(local, 'd/link')), 'run');
      assert.equal(await readFile(join(local, 'd/run'), 'utf8'), 'run\n');
      assert.ok(typeof report === 'object' && report !== null && 'leftOutCount' in report);
      assert.equal(report.leftOutCount, 2);
    });

    it('into a workspace keep execute bits and links', async () => {
      const from = join(local, 'in');
      await mkdir(from);
      await writeFile(join(from, 'run'), 'mine', { mode: 0o755 });
      await writeFile(join(from, 'large'), Buffer.alloc(9 * 2 ** 20, 'large'));
      await symlink('run', join(from, 'link'));
      const folder = sessionUri('/workspace/copies');
      await vscode.commands.executeCommand('holdfast.importFiles', folder, [folder], [from], 'skip');
      assert.equal(
        await runInSandbox('cd /workspace/copies/in && stat -c "%a %s %N" run large link'),
        "755 4 'run'\n644 9437184 'large'\n777 3 'link' -> 'run'\n",
      );
    });
  });
}
