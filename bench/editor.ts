// What the editor costs in a real VS Code, beside code-server's own files: node bench/editor.ts [--json] [--rounds N]
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import { z } from 'zod';
import { Progress } from '../scripts/setup/progress.mjs';
import { packageExtension } from '../scripts/setup/package.mjs';
import { ensureEditor } from '../scripts/setup/vscode.mjs';
import { Workbench } from '../test/editor/harness/browser.ts';
import { CodeServer } from '../test/editor/harness/code-server.ts';
import { installExtension } from '../test/editor/harness/extensions-folder.ts';
import type { EditorJob, EditorSamples } from './editor-host.ts';
import { Installation } from './installation.ts';
import { median, p99, Report } from './measure.ts';

const ROOT = join(import.meta.dirname, '..');
const DIST = join(ROOT, 'dist');
const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 7 : Number(process.argv[wanted + 1]);
const WINDOWS = 5;
const DOCUMENTS = 15;
const CHANGES = 15;
const RUN_MS = 180_000;
const MOST_BUNDLE = 600;

const SamplesSchema = z.record(z.string(), z.array(z.number()));

/** Writes the time into `live.txt` again and again, once there is a file `begin`. */
const WRITER = `
import os, sys, time
folder, times = sys.argv[1], int(sys.argv[2])
while not os.path.exists(folder + '/begin'): time.sleep(0.1)
time.sleep(1)
for n in range(times):
    with open(folder + '/live.txt', 'w') as file: file.write(str(time.time() * 1000))
    time.sleep(0.6)
`;
import { deployOver } from '../test/setup/deploy.ts';

const progress = new Progress();
const { codeServer, chromium } = await progress.step('VS Code and Chromium', ensureEditor);
const vsix = await packageExtension(join(DIST, 'holdfast.vsix'));
const suite = join(DIST, 'bench/editor-host.cjs');
await build({
  absWorkingDir: ROOT,
  entryPoints: [join(import.meta.dirname, 'editor-host.ts')],
  outfile: suite,
  bundle: true,
  platform: 'node',
  target: 'node22',
  format: 'cjs',
  external: ['vscode'],
  logLevel: 'warning',
});
const installation = await Installation.open();
const { client, home, agentImage } = installation;
const work = await mkdtemp(join(tmpdir(), 'holdfast-bench-editor-'));
const extensions = join(work, 'extensions');
await installExtension(codeServer, vsix, extensions);
const server = await CodeServer.start({
  codeServer,
  extensions,
  developer: true,
  env: { HOLDFAST_HOME: home },
});
const report = new Report('The editor', {
  'code-server': 'VS Code of the lockfile in test/editor/vscode',
  image: agentImage,
});

/** Opens a window of its own, with an extension host of its own, and measures in it. The installed extension is the packaged one. */
async function inWindow(folder: string, job: EditorJob): Promise<EditorSamples> {
  const stub = join(work, 'stub');
  await mkdir(stub, { recursive: true });
  const manifest = { name: 'bench', publisher: 'holdfast-bench', version: '1.0.0', engines: { vscode: '*' } };
  await writeFile(join(stub, 'package.json'), JSON.stringify(manifest));
  await writeFile(join(server.folder, 'job.json'), JSON.stringify(job));
  const samples = join(server.folder, 'samples.json');
  await rm(samples, { force: true });
  const workbench = await Workbench.open({ chromium, server, shots: join(DIST, 'bench') });
  try {
    const { page } = workbench;
    const ended = Promise.withResolvers<number>();
    await page.exposeFunction('codeAutomationExit', (code: number) => ended.resolve(code));
    await page.exposeFunction('codeAutomationLog', () => undefined);
    await page.goto(
      server.url({
        folder,
        payload: [
          ['extensionDevelopmentPath', server.remote(stub)],
          ['extensionTestsPath', server.remote(suite)],
          ['skipWelcome', 'true'],
        ],
      }),
    );
    const limit = setTimeout(() => ended.reject(new Error(`no end in ${RUN_MS} ms`)), RUN_MS);
    const code = await ended.promise.finally(() => clearTimeout(limit));
    if (code !== 0) throw new Error(`the measurement ended with ${code}\n${server.output}`);
    return SamplesSchema.parse(JSON.parse(await readFile(samples, 'utf8')));
  } finally {
    await workbench.close();
  }
}

/** The same files in the session and in a folder of this machine. */
async function makeFiles(session: string, beside: string): Promise<void> {
  const text = (bytes: number): Buffer =>
    Buffer.from('a line of text, as there are many of them\n'.repeat(bytes / 42));
  const put = async (name: string, bytes: Buffer): Promise<void> => {
    await writeFile(join(beside, name), bytes);
    const params = { session, path: `/workspace/${name}`, create: true, overwrite: true };
    if (bytes.length < 4 * 2 ** 20) {
      await client.call('files/write', params, { bytes });
      return;
    }
    const { upload } = await client.call('files/begin', params);
    for (let offset = 0; offset < bytes.length; offset += 2 ** 20)
      await client.call(
        'files/append',
        { session, upload, offset },
        { bytes: bytes.subarray(offset, offset + 2 ** 20) },
      );
    await client.call('files/commit', { session, upload, size: bytes.length });
  };
  for (const folder of ['many', 'open']) {
    await mkdir(join(beside, folder));
    await client.call('files/mkdir', { session, path: `/workspace/${folder}` });
  }
  await put('small.txt', text(50_000));
  await put('large.txt', text(5_000_000));
  await put('live.txt', text(100));
  for (let n = 0; n < DOCUMENTS; n += 1) await put(`open/${n}.txt`, text(50_000));
  for (let n = 0; n < 1000; n += 1) await put(`many/file-${n}.ts`, Buffer.from('x'));
}

function of(samples: EditorSamples, what: string): readonly number[] {
  const found = samples[what] ?? [];
  if (found.length === 0) throw new Error(`there are no samples of ${what}`);
  return found;
}

function addBeside(samples: EditorSamples, what: string, name: string): void {
  const [ours, peer] = [median(of(samples, what)), median(of(samples, `${what}, beside`))];
  report.add({
    name,
    ours,
    unit: 'ms',
    p99: p99(of(samples, what)),
    peer: { name: "code-server's own", value: peer },
    ratio: ours / peer,
    target: { atMost: 1.5 },
    samples: of(samples, what).length,
  });
}

try {
  const profile =
    'name: bench-editor\nagent: { protocol: command, command: [cat] }\nworkspace: { seed: false }\npersistence: persistent\n';
  await writeFile(join(work, 'holdfast.yaml'), profile);
  await deployOver(client, work);
  const session = (await client.call('session/create', { profile: 'bench-editor' })).session.id;
  await client.call('session/resume', { session });
  const beside = join(work, 'beside');
  await mkdir(beside);
  await makeFiles(session, beside);

  const local = join(work, 'empty');
  await mkdir(local);
  const starts: EditorSamples[] = [];
  for (let n = 0; n < WINDOWS; n += 1) starts.push(await inWindow(local, { kind: 'activation' }));
  const all = (what: string): number[] => starts.flatMap((start) => of(start, what));
  for (const [suffix, unit] of [
    ['', 'ms'],
    [', processor', 'ms of processor time'],
  ] as const) {
    const loads = all(`load${suffix}`);
    const activations = all(`activate${suffix}`).map((ms, n) => ms + (loads[n] ?? 0));
    report.add({
      name: `activation, ${median(loads).toFixed(1)} of it loading`,
      ours: median(activations),
      unit,
      target: { atMost: 60 },
      samples: WINDOWS,
    });
    report.add({
      name: 'what the first use loads, and connects',
      ours: median(all(`first use${suffix}`)),
      unit,
    });
  }
  const sizes = await Promise.all(
    ['extension.cjs', 'extension-protocol.cjs'].map(async (name) => (await stat(join(DIST, name))).size),
  );
  report.add({
    name: 'both bundles of the extension',
    ours: sizes.reduce((sum, size) => sum + size) / 1024,
    unit: 'KB',
    target: { atMost: MOST_BUNDLE },
  });

  const writers = [
    spawn('python3', ['-c', WRITER, beside, String(CHANGES)], { stdio: 'inherit' }),
    spawn(
      process.execPath,
      [
        join(DIST, 'holdfast.cjs'),
        'exec',
        session,
        '--',
        'python3',
        '-c',
        WRITER,
        '/workspace',
        String(CHANGES),
      ],
      { stdio: 'inherit', env: { ...process.env, HOLDFAST_HOME: home } },
    ),
  ];
  let samples: EditorSamples;
  try {
    samples = await inWindow(`holdfast://${session}/`, {
      kind: 'files',
      home,
      session,
      beside: { authority: `127.0.0.1:${server.port}`, path: beside },
      rounds,
      documents: DOCUMENTS,
      changes: CHANGES,
    });
  } finally {
    for (const writer of writers) writer.kill();
  }
  addBeside(samples, 'stat', 'stat');
  addBeside(samples, 'list', 'list of 1,000 entries');
  for (const what of ['read 50 KB', 'read 5 MB', 'write 50 KB', 'write 5 MB']) addBeside(samples, what, what);
  addBeside(samples, 'open', 'opening a document of 50 KB');
  report.add({
    name: "opening it, beyond the files API's own read",
    ours: median(of(samples, 'open')) - median(of(samples, 'files/read')),
    unit: 'ms',
    target: { atMost: 25 },
    samples: DOCUMENTS,
  });
  report.add({
    name: "an agent's write until its document has it",
    ours: median(of(samples, 'change')),
    unit: 'ms',
    p99: p99(of(samples, 'change')),
    peer: { name: "code-server's own", value: median(of(samples, 'change, beside')) },
    target: { atMost: 300 },
    samples: of(samples, 'change').length,
  });
} finally {
  await server.stop();
  await installation.dispose();
  await rm(work, { recursive: true, force: true });
}
if (!report.finish()) process.exitCode = 1;
