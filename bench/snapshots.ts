// What snapshots cost beside the ways that people use: node bench/snapshots.ts [--json] [--small] [--rounds N]
// S: 2,000 files, 50 MB; L: 100,000 files, 1 GB (left out with --small). Peers that are not installed are left out, and said.
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { LargeTree } from './large-tree.ts';
import { Installation } from './installation.ts';
import { median, type Figure, Report, timed } from './measure.ts';
import { deployOver } from '../test/setup/deploy.ts';

const run = promisify(execFile);
const CHANGED = 20;
const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 5 : Number(process.argv[wanted + 1]);
/** `firstRounds`: how often what begins a session is measured, each time with another one. */
interface Size {
  readonly name: string;
  readonly files: number;
  readonly bytes: number;
  readonly firstRounds: number;
}
const TREES: Size[] = [
  { name: 'S', files: 2000, bytes: 50e6, firstRounds: rounds },
  ...(process.argv.includes('--small') ? [] : [{ name: 'L', files: 100_000, bytes: 1e9, firstRounds: 1 }]),
];
/** The sidecar's thread for snapshots starts a moment after it: whoever resumes a session works in it first. */
const SETTLED_MS = 2500;

function versionOf(program: string, ...args: string[]): string | null {
  const { status, stdout } = spawnSync(program, args, { encoding: 'utf8' });
  return status === 0 ? (/\d+(\.\d+)+/.exec(stdout)?.[0] ?? 'there') : null;
}
const restic = versionOf('restic', 'version');
const git = versionOf('git', '--version');
const zstd = versionOf('zstd', '--version');
const report = new Report('Snapshots', {
  restic: restic ?? 'not installed: left out',
  git: git ?? 'not installed: left out',
  zstd: zstd ?? 'not installed: left out',
});

/** The ways that a tree can be kept besides ours. Each keeps what it needs in a folder of its own. */
class Peers {
  readonly #tree: string;
  readonly #place: string;
  #copies = 0;

  constructor(tree: string, place: string) {
    this.#tree = tree;
    this.#place = place;
  }

  async prepare(): Promise<void> {
    await mkdir(join(this.#place, 'copies'));
    if (restic !== null) await this.#restic('init');
    if (git !== null) {
      await run('git', ['init', '-q', '--bare', join(this.#place, 'shadow')]);
      await this.#git('config', 'core.bare', 'false');
    }
  }

  async tar(): Promise<void> {
    const archive = join(this.#place, 'tree.tar.zst');
    await this.#shell(`tar -C "$1" -cf - . | zstd -1 -q -f -o "$2" && sync "$2"`, this.#tree, archive);
  }

  async restic(): Promise<void> {
    await this.#restic('backup', '--quiet', this.#tree);
  }

  async shadow(): Promise<void> {
    await this.#git('add', '-A');
    await this.#git('write-tree');
  }

  async find(): Promise<void> {
    await this.#shell(`find "$1" -printf '%p %s %T@ %m\\n' >/dev/null`, this.#tree);
  }

  async copy(): Promise<number> {
    const place = join(this.#place, 'copies', String((this.#copies += 1)));
    const took = await timed(() => run('cp', ['-a', this.#tree, place]));
    await rm(place, { recursive: true });
    return took;
  }

  /** Into the container's own file system, for `commit`. */
  async intoContainer(id: string): Promise<void> {
    await run('docker', ['cp', `${this.#tree}/.`, `${id}:/tree`]);
  }

  async #restic(...args: string[]): Promise<void> {
    const env = {
      ...process.env,
      RESTIC_REPOSITORY: join(this.#place, 'restic'),
      RESTIC_PASSWORD: 'bench',
      RESTIC_CACHE_DIR: join(this.#place, 'restic-cache'),
    };
    await run('restic', args, { env });
  }

  async #git(...args: string[]): Promise<void> {
    const env = { ...process.env, GIT_DIR: join(this.#place, 'shadow'), GIT_WORK_TREE: this.#tree };
    await run('git', args, { env, cwd: this.#tree, maxBuffer: 2 ** 26 });
  }

  async #shell(script: string, ...args: string[]): Promise<void> {
    await run('sh', ['-c', script, 'sh', ...args]);
  }
}

const installation = await Installation.open();
const { client } = installation;
const place = mkdtempSync(join(tmpdir(), 'holdfast-bench-snapshots-'));
/** What docker keeps for us. */
const left: string[][] = [];

interface Begun {
  readonly session: { readonly id: string };
  readonly made: LargeTree;
  readonly peers: Peers;
  /** Of its first snapshot, and of tar, ms. */
  readonly first: number;
  readonly tar: number | null;
}

/** A session with a tree, and its first snapshot. */
async function begin({ name, files, bytes }: Size, round: number): Promise<Begun> {
  const { session } = await client.call('session/create', { profile: 'bench-snapshots' });
  const tree = join(installation.home, 'workspaces', session.id);
  await client.call('session/resume', { session: session.id });
  const made = new LargeTree(tree, files, bytes);
  made.write();
  const folder = join(place, `${name}-${round}`);
  await mkdir(folder);
  const peers = new Peers(tree, folder);
  await peers.prepare();
  // All of them find the tree in the machine's memory.
  await peers.find();
  if (zstd !== null) await peers.tar();
  await sleep(SETTLED_MS);
  const first = await timed(() => client.call('snapshot/create', { session: session.id }));
  const tar = zstd === null ? null : await timed(() => peers.tar());
  return { session, made, peers, first, tar };
}

async function measure(size: Size): Promise<void> {
  const { name, firstRounds } = size;
  const figure = (what: string, ours: number, more: Partial<Figure> = {}): void => {
    report.add({ name: `${name}: ${what}`, ours, unit: 'ms', ...more });
  };
  const against = (peer: string, value: number, ours: number, atMost?: number): Partial<Figure> => ({
    peer: { name: peer, value },
    ratio: ours / value,
    ...(atMost === undefined ? {} : { target: { atMost } }),
  });

  const begun: Begun[] = [];
  for (let round = 0; round < firstRounds; round += 1) {
    const before = begun.at(-1);
    if (before !== undefined)
      await client.call('session/delete', { session: before.session.id, force: true });
    begun.push(await begin(size, round));
  }
  const last = begun.at(-1);
  if (last === undefined) throw new Error('nothing was measured');
  const { session, made, peers } = last;
  const first = median(begun.map((one) => one.first));
  const base = await client.call('snapshot/list', { session: session.id, limit: 1 });
  if (zstd !== null) {
    const tar = median(begun.map((one) => one.tar ?? Number.NaN));
    figure('first snapshot', first, against('tar | zstd -1, fsync', tar, first, 1.5));
  } else figure('first snapshot', first);
  if (restic !== null) {
    figure('first snapshot', first, against('restic', await timed(() => peers.restic()), first, 0.5));
  }
  if (git !== null)
    figure('first snapshot', first, against('shadow git', await timed(() => peers.shadow()), first));
  figure('first snapshot', first, against('cp -a', await peers.copy(), first));
  const container = (await run('docker', ['create', installation.agentImage, 'true'])).stdout.trim();
  left.push(['rm', '-f', container]);
  await peers.intoContainer(container);
  const commit = async (): Promise<number> => {
    const start = performance.now();
    const { stdout } = await run('docker', ['commit', container]);
    const took = performance.now() - start;
    left.push(['rmi', '-f', stdout.trim()]);
    return took;
  };
  figure('first snapshot', first, against('docker commit', await commit(), first));

  const samples = { second: [], find: [], restic: [], git: [], unchanged: [], restore: [] } as Record<
    'second' | 'find' | 'restic' | 'git' | 'unchanged' | 'restore',
    number[]
  >;
  let more = { newBytes: 0, changedBytes: 1 };
  for (let round = 0; round < rounds; round += 1) {
    const changedBytes = made.rewriteSome(CHANGED, round);
    const contestants: [number[], () => Promise<unknown>][] = [
      [
        samples.second,
        async () => {
          const { newBytes } = await client.call('snapshot/create', { session: session.id });
          if (newBytes / changedBytes > more.newBytes / more.changedBytes) more = { newBytes, changedBytes };
        },
      ],
      [samples.find, () => peers.find()],
      ...(restic === null ? [] : [[samples.restic, () => peers.restic()] as [number[], () => Promise<void>]]),
      ...(git === null ? [] : [[samples.git, () => peers.shadow()] as [number[], () => Promise<void>]]),
    ];
    const turn = round % contestants.length;
    for (const [mine, act] of [...contestants.slice(turn), ...contestants.slice(0, turn)])
      mine.push(await timed(act));
    samples.unchanged.push(await timed(() => client.call('snapshot/create', { session: session.id })));
  }
  const second = median(samples.second);
  const find = median(samples.find);
  figure(`second, ${CHANGED} files changed`, second, against('find -printf', find, second, 1.7));
  if (restic !== null) {
    figure(
      `second, ${CHANGED} files changed`,
      second,
      against('restic', median(samples.restic), second, 0.2),
    );
  }
  if (git !== null) {
    figure(`second, ${CHANGED} files changed`, second, against('shadow git', median(samples.git), second, 1));
  }
  const unchanged = median(samples.unchanged);
  figure('nothing changed', unchanged, against('second', second, unchanged, 1));
  const allowed = 2 * more.changedBytes + 1e6;
  report.add({
    name: `${name}: disk for the second`,
    ours: more.newBytes / 1e6,
    unit: 'MB',
    ...against('2 × changed + 1', allowed / 1e6, more.newBytes / 1e6, 1),
  });

  for (let round = 0; round < rounds; round += 1) {
    const { id } = await client.call('snapshot/create', { session: session.id });
    made.rewriteSome(CHANGED, rounds + round);
    const restore = { session: session.id, snapshot: id, cancel: true };
    samples.restore.push(await timed(() => client.call('snapshot/restore', restore)));
  }
  const restored = median(samples.restore);
  figure(`restore, ${CHANGED} files changed`, restored, against('second', second, restored, 2));

  const cold: number[] = [];
  const recalled: number[] = [];
  for (let round = 0; round < 2 * Math.min(rounds, 3); round += 1) {
    await client.call('session/stop', { session: session.id });
    // What the sidecar has left; without it the next one reads everything.
    if (round % 2 === 1)
      await rm(join(installation.home, 'store', session.id, 'scans'), { recursive: true, force: true });
    await client.call('session/resume', { session: session.id });
    made.rewriteSome(CHANGED, 3 * rounds + round);
    (round % 2 === 0 ? recalled : cold).push(
      await timed(() => client.call('snapshot/create', { session: session.id })),
    );
  }
  const resumed = median(recalled);
  figure(`${CHANGED} files changed, new sidecar`, resumed, against('find -printf', find, resumed));
  figure(`${CHANGED} files changed, new sidecar`, resumed, against('all read again', median(cold), resumed));

  const snapshot = base.snapshots[0]?.id ?? '';
  // Answered when it is there for good, and usable when its files are: both are told, and held against the same.
  const forks = { answered: [] as number[], whole: [] as number[], copied: [] as number[] };
  for (let round = 0; round < firstRounds; round += 1) {
    if (round % 2 === 1) forks.copied.push(await peers.copy());
    const started = performance.now();
    const { session: fork } = await client.call('snapshot/fork', { snapshot, name: `fork-${name}-${round}` });
    forks.answered.push(performance.now() - started);
    await client.call('workspace/wait', { session: fork.id });
    forks.whole.push(performance.now() - started);
    await client.call('session/delete', { session: fork.id, force: true });
    if (round % 2 === 0) forks.copied.push(await peers.copy());
  }
  const copied = median(forks.copied);
  for (const [what, samples] of [
    ['fork', forks.answered],
    ['fork, until its files are all there', forks.whole],
  ] as const) {
    const ours = median(samples);
    figure(what, ours, against('cp -a', copied, ours, 1.2));
  }

  // An agent that writes all the time, so that it has to stand still.
  await client.call('session/resume', { session: session.id });
  const paths = made.samplePaths(CHANGED).map((path) => `/workspace/${path}`);
  const script = 'while :; do for f; do echo x >>"$f"; done; sleep 0.05; done';
  const { exec } = await client.call('exec/start', {
    session: session.id,
    command: ['sh', '-c', script, 'sh', ...paths],
  });
  const frozen: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    frozen.push((await client.call('snapshot/create', { session: session.id })).frozenMs);
  }
  await client.call('exec/kill', { exec, signal: 'KILL' });
  const still = median(frozen);
  figure(`frozen, ${CHANGED} files written all the time`, still, against('find -printf', find, still, 1.5));
  await client.call('session/delete', { session: session.id, force: true });
}

try {
  const profile =
    'name: bench-snapshots\nagent: { protocol: command, command: [cat] }\npersistence: persistent\n';
  const project = join(place, 'project');
  await mkdir(project);
  await writeFile(join(project, 'holdfast.yaml'), `${profile}workspace: { seed: false }\n`);
  await deployOver(client, project);
  for (const size of TREES) await measure(size);
} finally {
  for (const args of left) spawnSync('docker', args);
  await installation.dispose();
  rmSync(place, { recursive: true, force: true });
}
process.exitCode = report.finish() ? 0 : 1;
