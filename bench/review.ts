// Opening a review of 1,000 changed files in 100,000, deciding in it, and blame over 200 turns: node bench/review.ts [--json] [--rounds N]
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deployOver } from '../test/setup/deploy.ts';
import { writeProject } from '../test/setup/profiles.ts';
import { Installation } from './installation.ts';
import { LargeTree } from './large-tree.ts';
import { median, Report, timed } from './measure.ts';

const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 5 : Number(process.argv[wanted + 1]);
const FILES = 100_000;
const BYTES = 400 * 2 ** 20;
const CHANGED = 1000;
const TURNS = 200;
/** Files that the turns change in turn; each is asked about once, when nothing is remembered of it. */
const BLAMED = 5;

const installation = await Installation.open();
const { client, agentImage } = installation;
const top = await mkdtemp(join(tmpdir(), 'holdfast-bench-review-'));
const report = new Report('Reviewing 1,000 changed files of 100,000', { image: agentImage });

async function measureReview(): Promise<void> {
  const session = (await client.call('session/create', { profile: 'bench-review' })).session.id;
  await client.call('session/resume', { session });
  const tree = new LargeTree(join(installation.home, 'workspaces', session), FILES, BYTES);
  tree.write();
  let base = (await client.call('snapshot/create', { session })).id;
  const snapshots: number[] = [];
  const opened: number[] = [];
  const accepted: number[] = [];
  for (let round = 0; round < 2 * rounds; round += 1) {
    tree.rewriteSome(CHANGED, round);
    // In turn, so that a busy moment of the machine hits both.
    if (round % 2 === 0) {
      snapshots.push(
        await timed(async () => (base = (await client.call('snapshot/create', { session })).id)),
      );
      continue;
    }
    opened.push(await timed(() => client.call('review/open', { session, base: `snapshot:${base}` })));
    const { files, review } = await client.call('review/files', { session, limit: 5 });
    if (review.counts.files !== CHANGED) throw new Error(`${review.counts.files} files`);
    for (const { path, id } of files) {
      const { hunks } = await client.call('review/file', { session, path });
      const [hunk] = hunks;
      if (hunk === undefined) throw new Error(`no hunk in ${path}`);
      const decisions = [{ path, seen: id, hunks: [hunk.id] }];
      accepted.push(
        await timed(() => client.call('review/decide', { session, verdict: 'accept', decisions })),
      );
    }
    base = review.target.snapshotId;
  }
  report.add({
    name: 'a review, opened for the first time',
    ours: median(opened),
    unit: 'ms',
    peer: { name: 'a snapshot of the same changes', value: median(snapshots) },
    ratio: median(opened) / median(snapshots),
    samples: rounds,
  });
  report.add({
    name: 'the same, beyond the snapshot',
    ours: median(opened) - median(snapshots),
    unit: 'ms',
    target: { atMost: 500 },
    samples: rounds,
  });
  report.add({
    name: 'a hunk accepted',
    ours: median(accepted),
    unit: 'ms',
    target: { atMost: 50 },
    samples: accepted.length,
  });
}

async function measureBlame(): Promise<void> {
  const session = (await client.call('session/create', { profile: 'bench-review' })).session.id;
  const prompt = async (text: string): Promise<void> => {
    const { turn } = await client.call('turn/start', { session, prompt: text });
    await client.call('turn/wait', { turn: turn.turnId });
  };
  await prompt(`for f in $(seq ${BLAMED}); do seq 2000 > file$f; done`);
  for (let turn = 0; turn < TURNS; turn += 1)
    await prompt(`for f in $(seq ${BLAMED}); do sed -i '${turn * 9 + 1}s/.*/turn ${turn}/' file$f; done`);
  await client.call('snapshot/create', { session });
  const samples: number[] = [];
  for (let file = 1; file <= BLAMED; file += 1) {
    samples.push(
      await timed(async () => {
        const { origins } = await client.call('review/blame', { session, path: `/workspace/file${file}` });
        if (origins.length < TURNS) throw new Error(`${origins.length} origins`);
      }),
    );
  }
  report.add({
    name: `blame of a file that ${TURNS} turns changed, for the first time`,
    ours: median(samples),
    unit: 'ms',
    target: { atMost: 200 },
    samples: samples.length,
  });
}

try {
  const project = await writeProject(top, {
    'holdfast.yaml':
      'name: bench-review\nagent: { protocol: command, command: [sh] }\npersistence: persistent\n',
  });
  await deployOver(client, project);
  await measureReview();
  await measureBlame();
} finally {
  await installation.dispose();
  await rm(top, { recursive: true, force: true });
}
if (!report.finish()) process.exitCode = 1;
