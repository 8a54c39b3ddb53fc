import { copyFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { HOSTILE_TITLE, plantHostileFiles } from '../editor/hostile.ts';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';
import type { User } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });

/** Longer than a window takes to apply what VS Code remembers: the control below waits for it. */
const SETTLED_MS = 10_000;

/** A program in the place of the extension's: `obeying` lets VS Code read settings of an agent, `silent` never answers. */
function standIn(kind: 'obeying' | 'silent'): string {
  return `
const { Disposable, EventEmitter, FileSystemError, FileType, workspace } = require('vscode');
const FILES = new Map([
  ['/workspace', FileType.Directory],
  ['/workspace/.vscode', FileType.Directory],
  ['/workspace/.vscode/settings.json', FileType.File],
  ['/workspace/agent.code-workspace', FileType.File],
]);
const SETTINGS = { 'window.title': ${JSON.stringify(HOSTILE_TITLE)} };
const textOf = (path) =>
  Buffer.from(JSON.stringify(path.endsWith('settings.json') ? SETTINGS : { folders: [], settings: SETTINGS }));
const never = () => new Promise(() => undefined);
const answer = (work) => ${kind === 'silent' ? 'never' : '({ path }) => work(path)'};
const stat = (path) => {
  const type = FILES.get(path);
  if (type === undefined) throw FileSystemError.FileNotFound(path);
  return { type, ctime: 1, mtime: 1, size: textOf(path).length };
};
exports.activate = ({ subscriptions }) => {
  const provider = {
    onDidChangeFile: new EventEmitter().event,
    watch: () => new Disposable(() => undefined),
    stat: answer(stat),
    readDirectory: answer((path) =>
      path === '/workspace' ? [['.vscode', FileType.Directory]] : [['settings.json', FileType.File]],
    ),
    readFile: answer((path) => (stat(path), textOf(path))),
    writeFile: never,
    createDirectory: never,
    delete: never,
    rename: never,
  };
  subscriptions.push(workspace.registerFileSystemProvider('holdfast', provider, { isCaseSensitive: true }));
};
`;
}

// Both wait most of their time.
test.concurrent.each([
  ['folder', ''],
  ['workspace', '/agent.code-workspace'],
] as const)(
  'settings of an agent that VS Code remembers of a %s from an earlier time are forgotten',
  async (kind, below) => {
    const home = await TestHome.create();
    try {
      await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
      const { id } = CreatedSchema.parse(await home.runJson(['session', 'create', 'shell'])).session;
      const marks = await plantHostileFiles(home, id);
      const unsafe = { [kind]: `holdfast://${id}/workspace${below}` };
      await journey('remembered-configuration', { home: home.path, open: {} }, async (person) => {
        const { page } = person;
        const program = await programOfTheExtension(person);
        const genuine = `${program}.genuine`;
        await copyFile(program, genuine);

        await writeFile(program, standIn('obeying'));
        await person.open(unsafe);
        await expect.poll(() => page.title(), { timeout: 60_000 }).toContain(HOSTILE_TITLE);
        // What VS Code remembers it writes down a moment later, which nothing shows from outside.
        await page.waitForTimeout(SETTLED_MS);

        // The control: nobody answers, and still the settings apply.
        await writeFile(program, standIn('silent'));
        await person.open(unsafe);
        await expect.poll(() => page.title(), { timeout: SETTLED_MS }).toContain(HOSTILE_TITLE);

        await copyFile(genuine, program);
        await person.open(unsafe);
        await page.waitForURL((url) => url.searchParams.get('folder') === `holdfast://${id}/`, {
          timeout: 60_000,
        });
        await person.explorerRow('workspace').first().waitFor();
        await expect.poll(() => page.title(), { timeout: 30_000 }).not.toContain(HOSTILE_TITLE);

        // The same as the control: nobody answers, and there is nothing that applies.
        await writeFile(program, standIn('silent'));
        await person.open(unsafe);
        await page.waitForTimeout(SETTLED_MS);
        expect(await page.title()).not.toContain(HOSTILE_TITLE);
        expect(await readdir(marks)).toEqual([]);
      });
    } finally {
      await home.dispose();
    }
  },
);

/** What VS Code runs of the installed extension; each window that opens runs it again. */
async function programOfTheExtension({ server }: User): Promise<string> {
  const extensions = join(server.folder, 'extensions');
  const [name] = (await readdir(extensions)).filter((one) => one.startsWith('holdfast.holdfast-'));
  if (name === undefined) throw new Error(`the extension is not in ${extensions}`);
  return join(extensions, name, 'dist/extension.cjs');
}
