// How late a change in a workspace reaches a client: node bench/watch.ts [--json] [--seconds N]
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Installation } from './installation.ts';
import { median, p99, Report } from './measure.ts';

const wanted = process.argv.indexOf('--seconds');
const seconds = wanted < 0 ? 10 : Number(process.argv[wanted + 1]);
const RATE = 1000;

const installation = await Installation.open();
const { client, agentImage } = installation;
const project = await mkdtemp(join(tmpdir(), 'holdfast-bench-watch-'));
const report = new Report('Watching a workspace', { image: agentImage });

// Each change has its time in the file's name, in ns of the clock that all processes share.
const WRITER = `
import os, sys, time
rate, seconds = int(sys.argv[1]), float(sys.argv[2])
os.makedirs('/workspace/src', exist_ok=True)
begin = time.time_ns()
for n in range(int(rate * seconds)):
    due = begin + n * 10**9 // rate
    wait = due - time.time_ns()
    if wait > 0: time.sleep(wait / 1e9)
    open('/workspace/src/%d' % time.time_ns(), 'w').close()
print(int(rate * seconds / ((time.time_ns() - begin) / 1e9)))
`;
import { deployOver } from '../test/setup/deploy.ts';

try {
  await writeFile(
    join(project, 'holdfast.yaml'),
    'name: bench-watch\nagent: { protocol: command, command: [python3, /agent/writer.py], prompt: argument }\nworkspace: { seed: false }\npersistence: persistent\n',
  );
  await writeFile(
    join(project, 'writer.py'),
    WRITER.replace(
      'sys.argv[1]), float(sys.argv[2])',
      'sys.argv[1].split()[0]), float(sys.argv[1].split()[1])',
    ),
  );
  await deployOver(client, project);
  const session = (await client.call('session/create', { profile: 'bench-watch' })).session.id;
  await client.call('session/resume', { session });
  await client.call('files/mkdir', { session, path: '/workspace/src' });

  const late: number[] = [];
  let overflows = 0;
  let batches = 0;
  client.onNotification('files/changed', ({ changes, overflow }) => {
    const now = performance.timeOrigin + performance.now();
    batches += 1;
    if (overflow) overflows += 1;
    for (const { path, kind } of changes) {
      const at = /\/(\d{19})$/.exec(path)?.[1];
      if (at !== undefined && kind === 'created') late.push(now - Number(at) / 1e6);
    }
  });
  const { mode } = await client.call('files/watch', { session, path: '/workspace' });
  const { turn } = await client.call('turn/start', { session, prompt: `${RATE} ${seconds}` });
  await client.call('turn/wait', { turn: turn.turnId });
  const { result, bytes } = await client.callWithBytes('turn/output', {
    turn: turn.turnId,
    stream: 'stdout',
    offset: 0,
  });
  await sleep(500);
  const rate = Number(bytes.subarray(0, result.total).toString());
  report.add({
    name: `${mode}: changes a second that the agent made`,
    ours: rate,
    unit: '/s',
    target: { atLeast: RATE * 0.9 },
  });
  report.add({
    name: 'changes told of, of those made',
    ours: late.length / (RATE * seconds),
    unit: '',
    target: { atLeast: 1 },
  });
  report.add({ name: 'overflows', ours: overflows, unit: '', target: { atMost: 0 } });
  report.add({ name: 'change to client, median', ours: median(late), unit: 'ms', samples: late.length });
  report.add({
    name: `change to client, 99 % (in ${batches} batches)`,
    ours: p99(late),
    unit: 'ms',
    target: { atMost: 150 },
    samples: late.length,
  });
} finally {
  await installation.dispose();
  await rm(project, { recursive: true, force: true });
}
process.exitCode = report.finish() ? 0 : 1;
