import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { appendFile, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { z } from 'zod';
import { commandLine, runHoldfast } from './command-line.ts';
import { extension, waitUntil } from './extension.ts';
import { SESSION, homeId, runInSandbox, sessionUri } from './session.ts';

const ArtifactSchema = z.object({
  ...{ id: z.string(), kind: z.string(), name: z.string(), files: z.number(), leftOut: z.number() },
});
const ExportedSchema = z.object({
  files: z.number(),
  quarantined: z.array(z.object({ path: z.string() })),
  refused: z.array(z.object({ path: z.string() })),
});

/** A name with a control character and one that reverses what follows, as the shell writes it. */
const ODD = String.raw`odd\001\342\200\256txt.md`;

function run(command: string, ...args: readonly unknown[]): Thenable<unknown> {
  return vscode.commands.executeCommand(`holdfast.${command}`, ...args);
}

async function kept(wanted: object): Promise<z.infer<typeof ArtifactSchema>> {
  return ArtifactSchema.parse(await run('keepArtifact', SESSION, wanted));
}

async function listed(): Promise<readonly string[]> {
  const { artifacts } = z
    .object({ artifacts: z.array(ArtifactSchema) })
    .parse(await runHoldfast(['artifact', 'list']));
  return artifacts.map(({ id }) => id);
}

/** The document of an artifact that the person sees. */
function shown(): vscode.TextDocument | undefined {
  const document = vscode.window.activeTextEditor?.document;
  return document?.uri.scheme === 'holdfast-artifact' ? document : undefined;
}

function documentUri(artifact: string, path: string, query: string): vscode.Uri {
  return vscode.Uri.from({ scheme: 'holdfast-artifact', authority: `${artifact}.${homeId()}`, path, query });
}

/** Presses Enter, in lists and boxes, until the work has ended. */
async function acceptAll<T>(work: Thenable<T>): Promise<T> {
  let isOver = false;
  const ended = Promise.resolve(work).finally(() => (isOver = true));
  ended.catch(() => undefined);
  await waitUntil('the end of the questions', async () => {
    await vscode.commands.executeCommand('workbench.action.acceptSelectedQuickOpenItem');
    return isOver;
  });
  return ended;
}

/** Needs a session of a profile with a shell. */
export function defineArtifacts(): void {
  describe('artifacts', () => {
    let local = '';
    before(async () => {
      await extension().activate();
      local = await mkdtemp(join(tmpdir(), 'holdfast-artifacts-'));
      // What is compared with.
      await commandLine(['snapshot', 'create', SESSION]);
      await runInSandbox(
        [
          'mkdir -p /workspace/out/.vscode /workspace/out/.git && cd /workspace/out',
          'echo one > one.txt; echo "{}" > .vscode/settings.json; echo "{}" > package.json; echo x > .git/config',
          `printf odd > "$(printf '${ODD}')"; ln -s /etc/passwd link; printf 'a\\0b' > binary`,
        ].join('\n'),
      );
    });
    after(() => rm(local, { recursive: true, force: true }));

    it('keep chosen files, which open read-only, and obey nothing in them', async () => {
      const artifact = await kept({ paths: ['out'], name: 'results' });
      assert.deepEqual([artifact.kind, artifact.name, artifact.leftOut], ['files', 'results', 1]);
      await run('openArtifact', artifact.id, '/workspace/out/one.txt');
      assert.equal(shown()?.getText(), 'one\n');
      const { uri } = shown() ?? assert.fail('no document');
      await vscode.commands.executeCommand('type', { text: 'typed ' });
      assert.equal(shown()?.getText(), 'one\n');
      assert.equal(vscode.workspace.fs.isWritableFileSystem('holdfast-artifact'), undefined);
      await run('openArtifact', artifact.id, '/workspace/out/binary');
      assert.match(shown()?.getText() ?? '', /not text/);

      // A configuration has a name that VS Code does not obey; under its own it is refused, as in sessions and snapshots.
      const settings = '/workspace/out/.vscode/settings.json';
      await run('openArtifact', artifact.id, settings);
      assert.equal(shown()?.uri.path, '/workspace/out/.vscode (agent)/settings.json');
      for (const [path, query] of [
        [settings, settings],
        ['/workspace/out/./.vscode/settings.json', settings],
        ['/workspace/out/one.txt', settings],
        ['/.vscode/settings.json', settings],
        ['/workspace/out/../../etc/passwd', '/workspace/out/../../etc/passwd'],
        ['/workspace/out/one.txt', '/workspace/../etc/passwd'],
        ['/workspace/out/link', '/workspace/out/link'],
        ['/workspace/out/none', '/workspace/out/none'],
      ] as const)
        await assert.rejects(
          Promise.resolve(vscode.workspace.openTextDocument(documentUri(artifact.id, path, query))),
          `${path} ${query}`,
        );
      const elsewhere = uri.with({ authority: `${artifact.id}.${'a'.repeat(26)}` });
      await assert.rejects(Promise.resolve(vscode.workspace.openTextDocument(elsewhere)));
      await assert.rejects(Promise.resolve(vscode.workspace.fs.stat(uri)));

      // Names of the agent are shown as text.
      const odd = '/workspace/out/odd\u0001\u202etxt.md';
      await run('openArtifact', artifact.id, odd);
      assert.equal(shown()?.uri.path, String.raw`/workspace/out/odd\u{1}\u{202e}txt.md`);
      assert.equal(shown()?.getText(), 'odd');
    });

    it('keep what changed as a patch, which the list opens', async () => {
      const { id, kind } = await kept({ kind: 'patch', name: 'changes' });
      assert.equal(kind, 'patch');
      await vscode.commands.executeCommand('workbench.action.closeAllEditors');
      await acceptAll(run('showArtifacts', SESSION));
      const document = await waitUntil('the patch', shown);
      assert.equal(document.uri.authority, `${id}.${homeId()}`);
      assert.equal(document.languageId, 'diff');
      assert.match(document.getText(), /^diff --git a\/out\/one.txt b\/out\/one.txt$/m);
    });

    it('keep a file of the Explorer as it is in the workspace, whatever the review says', async () => {
      await commandLine(['review', SESSION]);
      const uri = sessionUri('/workspace/out/one.txt');
      const artifact = ArtifactSchema.parse(await acceptAll(run('keepArtifact', uri, [uri])));
      assert.deepEqual([artifact.name, artifact.files], ['one.txt', 1]);
      // Of the session only what is accepted is kept, and nothing is.
      const refused = run('keepArtifact', SESSION, { kind: 'patch' });
      assert.equal(await refused, undefined);
      await commandLine(['review', 'accept', SESSION, '/workspace/out/one.txt']);
      const accepted = await kept({ kind: 'patch', name: 'accepted' });
      await run('openArtifact', accepted.id);
      assert.doesNotMatch(shown()?.getText() ?? '', /package\.json/);
    });

    it('are written into a new folder without what would run here, or not at all', async () => {
      const { id } = await kept({ paths: ['out'], unreviewed: true });
      const folder = join(local, 'exported');
      const { files, quarantined, refused } = ExportedSchema.parse(await run('exportArtifact', id, folder));
      assert.deepEqual((await readdir(join(folder, 'out'))).sort(), [
        'binary',
        'odd\u0001\u202etxt.md',
        'one.txt',
      ]);
      assert.equal(files, 3);
      assert.deepEqual(
        quarantined.map(({ path }) => path),
        ['out/.vscode/settings.json', 'out/package.json'],
      );
      assert.deepEqual(
        refused.map(({ path }) => path),
        ['out/.git/config'],
      );
      assert.equal(await readFile(join(folder, 'out/one.txt'), 'utf8'), 'one\n');
      const full = join(local, 'full');
      await mkdir(full);
      await writeFile(join(full, 'mine'), 'mine');
      assert.equal(await run('exportArtifact', id, full), undefined);
      assert.deepEqual(await readdir(full), ['mine']);
    });

    it('are verified, and a changed one is found', async () => {
      const { id } = await kept({ paths: ['out/one.txt'], unreviewed: true });
      assert.equal(await run('verifyArtifact', id), true);
      assert.match(shown()?.getText() ?? '', /Each file is what was kept\.[^]*Valid: signed with the key/);
      const contents = join(process.env['HOLDFAST_HOME'] ?? '', 'promoted', id);
      await writeFile(contents, 'two\n');
      assert.equal(await run('verifyArtifact', id), false);
      await waitUntil('the other text', () => shown()?.getText().includes('NOT VALID: 1 file of 1'));
      await assert.rejects(
        Promise.resolve(
          vscode.workspace.openTextDocument(
            documentUri(id, '/workspace/out/one.txt', '/workspace/out/one.txt'),
          ),
        ),
      );
      await appendFile(contents, 'more');
      assert.equal(await run('exportArtifact', id, join(local, 'changed')), undefined);
      assert.equal(existsSync(join(local, 'changed')), false);
    });

    it('stay when their session is deleted, until they are deleted', async () => {
      const { session } = z
        .object({ session: z.object({ id: z.string() }) })
        .parse(await runHoldfast(['session', 'create', 'shell', '--name', 'leaves']));
      await commandLine(['exec', session.id, '--', 'sh', '-c', 'echo stays > stays.txt']);
      const { id } = ArtifactSchema.parse(
        await waitUntil('the session is known', () =>
          run('keepArtifact', session.id, { paths: ['stays.txt'], name: 'stays' }),
        ),
      );
      await commandLine(['session', 'delete', session.id, '--force']);
      await run('openArtifact', id, '/workspace/stays.txt');
      assert.equal(shown()?.getText(), 'stays\n');
      assert.equal(await run('deleteArtifact', id, true), true);
      assert.ok(!(await listed()).includes(id));
      assert.equal(await run('openArtifact', id, '/workspace/stays.txt'), undefined);
    });
  });
}
