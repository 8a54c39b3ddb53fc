// The part of bench/editor.ts that runs inside VS Code's extension host: it measures, and leaves its samples in a file.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as vscode from 'vscode';
import { connectSupervisor } from '../protocol/client/connect.ts';
import { interleave, median } from './measure.ts';

/** What bench/editor.ts wants measured. */
export type EditorJob =
  | { readonly kind: 'activation' }
  | {
      readonly kind: 'files';
      readonly home: string;
      readonly session: string;
      /** The same files as in `/workspace`, where code-server's own provider finds them. */
      readonly beside: { readonly authority: string; readonly path: string };
      readonly rounds: number;
      /** How many documents there are to open, `open/0.txt` and so on. */
      readonly documents: number;
      /** How often `live.txt` is written by others, each time with the time: ms since 1970. */
      readonly changes: number;
    };

/** Samples in ms by what they are of. */
export type EditorSamples = Readonly<Record<string, readonly number[]>>;

const CALLS = { stat: 25, list: 5, small: 11, large: 3 } as const;
const SMALL = 50_000;
const LARGE = 5_000_000;
const CHANGE_MS = 15_000;

/** VS Code calls it where tests would run. */
export async function run(): Promise<void> {
  const folder = process.env['TMPDIR'] ?? '';
  const job = JSON.parse(readFileSync(join(folder, 'job.json'), 'utf8')) as EditorJob;
  const samples = job.kind === 'activation' ? await activation() : await files(job);
  writeFileSync(join(folder, 'samples.json'), JSON.stringify(samples));
}

function ours(): vscode.Extension<unknown> {
  const extension = vscode.extensions.getExtension('holdfast.holdfast');
  if (extension === undefined) throw new Error('the extension is not in this VS Code');
  return extension;
}

interface Program {
  readonly activate: (context: vscode.ExtensionContext) => void;
}

/** Loading, the call of `activate`, and the first answer of a supervisor that runs: wall time, and processor time of the whole process. */
async function activation(): Promise<EditorSamples> {
  const extension = ours();
  if (extension.isActive) throw new Error('it was active before');
  const spent: Record<string, number[]> = {};
  const measured = <T>(what: string, work: () => T): T => {
    const before = process.cpuUsage();
    const began = performance.now();
    const end = (): void => {
      const { user, system } = process.cpuUsage(before);
      spent[what] = [performance.now() - began];
      spent[`${what}, processor`] = [(user + system) / 1000];
    };
    const result = work();
    if (result instanceof Promise) void result.then(end, end);
    else end();
    return result;
  };
  const path = join(extension.extensionPath, 'dist/extension.cjs');
  // eslint-disable-next-line @typescript-eslint/no-require-imports -- as VS Code does it, which then finds what is loaded here
  const program = measured('load', () => require(path) as Program);
  const loaded = require.cache[path];
  if (loaded === undefined) throw new Error(`${path} is not among what is loaded`);
  loaded.exports = {
    activate: (context: vscode.ExtensionContext) => measured('activate', () => program.activate(context)),
  } satisfies Program;
  await extension.activate();
  const nobodys = vscode.Uri.from({
    scheme: 'holdfast',
    authority: `ses-${'a'.repeat(16)}`,
    path: '/workspace',
  });
  await measured('first use', () =>
    Promise.resolve(vscode.workspace.fs.stat(nobodys)).catch(() => undefined),
  );
  return spent;
}

type FilesJob = Extract<EditorJob, { kind: 'files' }>;

async function files(job: FilesJob): Promise<EditorSamples> {
  await ours().activate();
  const inSession = vscode.Uri.from({ scheme: 'holdfast', authority: job.session, path: '/workspace' });
  const { authority, path } = job.beside;
  const beside = vscode.Uri.from({ scheme: 'vscode-remote', authority, path });
  const samples: Record<string, readonly number[]> = {};
  const compare = async (
    what: string,
    times: number,
    work: (root: vscode.Uri, n: number) => Thenable<unknown>,
  ): Promise<void> => {
    const each = async (root: vscode.Uri): Promise<number> => {
      const mine: number[] = [];
      for (let n = 0; n < times; n += 1) mine.push(await timed(() => work(root, n)));
      return median(mine);
    };
    await each(inSession);
    await each(beside);
    const got = await interleave(job.rounds, { ours: () => each(inSession), peer: () => each(beside) });
    samples[what] = got.ours;
    samples[`${what}, beside`] = got.peer;
  };
  const { fs } = vscode.workspace;
  const at = vscode.Uri.joinPath;
  await compare('stat', CALLS.stat, (root) => fs.stat(at(root, 'small.txt')));
  await compare('list', CALLS.list, (root) => fs.readDirectory(at(root, 'many')));
  await compare('read 50 KB', CALLS.small, (root) => fs.readFile(at(root, 'small.txt')));
  await compare('read 5 MB', CALLS.large, (root) => fs.readFile(at(root, 'large.txt')));
  const contents = (bytes: number, n: number): Uint8Array => Buffer.alloc(bytes, 97 + (n % 26));
  await compare('write 50 KB', CALLS.small, (root, n) => fs.writeFile(at(root, 'w'), contents(SMALL, n)));
  await compare('write 5 MB', CALLS.large, (root, n) => fs.writeFile(at(root, 'v'), contents(LARGE, n)));
  Object.assign(samples, await documents(job, inSession, beside), await changes(job, inSession, beside));
  return samples;
}

/** Each is opened for the first time, right after the files API has read one of the same size. */
async function documents(job: FilesJob, inSession: vscode.Uri, beside: vscode.Uri): Promise<EditorSamples> {
  const client = { name: 'bench', version: '0', build: '0', builtAt: 0 };
  const { peer, close } = await connectSupervisor({ home: job.home, program: client, start: 'never' });
  const open = (root: vscode.Uri, n: number) => async (): Promise<void> => {
    await vscode.workspace.openTextDocument(vscode.Uri.joinPath(root, `open/${n}.txt`));
  };
  const found: Record<'read' | 'open' | 'beside', number[]> = { read: [], open: [], beside: [] };
  try {
    for (let n = 0; n < job.documents; n += 1) {
      const { session } = job;
      const path = `/workspace/open/${n}.txt`;
      found.read.push(await timed(() => peer.callWithBytes('files/read', { session, path })));
      found.open.push(await timed(open(inSession, n)));
      found.beside.push(await timed(open(beside, n)));
    }
  } finally {
    close();
  }
  return { 'files/read': found.read, open: found.open, 'open, beside': found.beside };
}

/** From the time that is written into a file until its document has it. */
async function changes(job: FilesJob, inSession: vscode.Uri, beside: vscode.Uri): Promise<EditorSamples> {
  const seen = { ours: [] as number[], peer: [] as number[] };
  const listener = vscode.workspace.onDidChangeTextDocument(({ document }) => {
    const late = performance.timeOrigin + performance.now() - Number(document.getText());
    if (!Number.isFinite(late)) return;
    (document.uri.scheme === 'holdfast' ? seen.ours : seen.peer).push(late);
  });
  try {
    for (const [root, viewColumn] of [
      [inSession, vscode.ViewColumn.One],
      [beside, vscode.ViewColumn.Two],
    ] as const) {
      const document = await vscode.workspace.openTextDocument(vscode.Uri.joinPath(root, 'live.txt'));
      await vscode.window.showTextDocument(document, { viewColumn });
    }
    // Whoever writes looks for it.
    await vscode.workspace.fs.writeFile(vscode.Uri.joinPath(inSession, 'begin'), new Uint8Array());
    await vscode.workspace.fs.writeFile(vscode.Uri.joinPath(beside, 'begin'), new Uint8Array());
    const deadline = Date.now() + CHANGE_MS + job.changes * 1000;
    while (Date.now() < deadline && (seen.ours.length < job.changes || seen.peer.length < job.changes))
      await new Promise((resolve) => setTimeout(resolve, 100));
  } finally {
    listener.dispose();
  }
  return { change: seen.ours, 'change, beside': seen.peer };
}

async function timed(work: () => unknown): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}
