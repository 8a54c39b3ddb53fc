// Searching a workspace of 10,000 files beside ripgrep in the container: node bench/search.ts [--json] [--rounds N]
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import Docker from 'dockerode';
import { Installation } from './installation.ts';
import { interleave, median, p99, Report, timed } from './measure.ts';
import { containerOf } from './session-containers.ts';

const run = promisify(execFile);
const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 15 : Number(process.argv[wanted + 1]);

const docker = new Docker();
const installation = await Installation.open();
const { client, agentImage } = installation;
const project = await mkdtemp(join(tmpdir(), 'holdfast-bench-search-'));
const report = new Report('Searching a workspace of 10,000 files', {
  docker: (await docker.version()).Version,
  image: agentImage,
});

const FILL = `
import os
text = ''.join('line %d of some ordinary text, with words and more words\\n' % n for n in range(150))
for n in range(10_000):
    folder = '/workspace/d%d/e%d' % (n % 50, n % 7)
    os.makedirs(folder, exist_ok=True)
    with open('%s/file%d.ts' % (folder, n), 'w') as f:
        f.write(text)
        if n % 100 == 0: f.write('the needle that is looked for\\n')
`;
import { deployOver } from '../test/setup/deploy.ts';

try {
  await writeFile(
    join(project, 'holdfast.yaml'),
    'name: bench-search\nagent: { protocol: command, command: [python3, "-"] }\nworkspace: { seed: false }\npersistence: persistent\n',
  );
  await deployOver(client, project);
  const session = (await client.call('session/create', { profile: 'bench-search' })).session.id;
  const { turn } = await client.call('turn/start', { session, prompt: FILL });
  await client.call('turn/wait', { turn: turn.turnId });
  const sidecar = await containerOf(session, 'sidecar');

  // Timed inside, so that docker's own time does not count for it.
  const bare = `const {spawnSync} = require('child_process'); const start = performance.now();
    const {stdout} = spawnSync('/usr/bin/rg', ['--no-config', '--json', '--threads=2', 'needle', '.'], {cwd: '/workspace', env: {}, maxBuffer: 1e9});
    console.log(performance.now() - start); if (!stdout.includes('needle')) process.exit(1)`;
  let lines = 0;
  client.onNotification('files/found', (page) => (lines += page.lines.length));
  const samples = await interleave(rounds, {
    ours: () =>
      timed(async () => {
        const { matches } = await client.call('files/search', { session, token: 'bench', pattern: 'needle' });
        if (matches !== 100) throw new Error(`${matches} matches`);
      }),
    bare: async () => Number((await run('docker', ['exec', sidecar, 'node', '-e', bare])).stdout),
    names: () => timed(() => client.call('files/find', { session, query: 'file99' })),
    usage: () => timed(() => client.call('files/usage', { session })),
  });
  if (lines !== rounds * 100) throw new Error(`${lines} lines`);
  report.add({
    name: 'text, 100 matching lines',
    ours: median(samples.ours),
    unit: 'ms',
    p99: p99(samples.ours),
    peer: { name: 'ripgrep inside', value: median(samples.bare) },
    ratio: median(samples.ours) / median(samples.bare),
    target: { atMost: 1.5 },
    samples: rounds,
  });
  report.add({ name: 'files by name', ours: median(samples.names), unit: 'ms', samples: rounds });
  report.add({ name: 'space by folder', ours: median(samples.usage), unit: 'ms', samples: rounds });
} finally {
  await installation.dispose();
  await rm(project, { recursive: true, force: true });
}
process.exitCode = report.finish() ? 0 : 1;
