import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { z } from 'zod';
import { CUT_OPERATIONS, type CutFixture } from '../fixtures/hosts/cut-operations.ts';
import { Cuts, randomOf } from '../fixtures/hosts/cuts.ts';
import { NearMachine } from '../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer } from '../fixtures/hosts/ssh-server.ts';
import { registerHome } from '../setup/run-homes.ts';
import { printInSoak, soakCount } from '../setup/run-length.ts';
import { connectTo } from '../setup/test-client.ts';

const AGENT = resolve(import.meta.dirname, '../fixtures/acp-agent/agent.mjs');
const SEED = Number(process.env['HOLDFAST_SEED'] ?? 19);
/** Each of the six operations is interrupted a hundred times in the soak run. */
const LINKS = [
  { delayMs: 1, jitterMs: 3, attempts: soakCount(6, 390) },
  { delayMs: 50, jitterMs: 20, attempts: soakCount(3, 150) },
  { delayMs: 200, jitterMs: 80, attempts: soakCount(1, 60) },
].map((link, index) => ({ ...link, index }));

let server: SshServer;
beforeAll(async () => {
  if (SSHD === undefined) return;
  // The engine of this machine, and its Node.
  const { DOCKER_HOST } = process.env;
  server = await SshServer.start(SSHD, {
    environment: {
      PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
      ...(DOCKER_HOST === undefined ? {} : { DOCKER_HOST }),
    },
  });
});
afterAll(async () => {
  if (SSHD === undefined) return;
  const last = new NearMachine(server);
  await last.run('purge', '--force', '--host', 'far');
  await last.dispose({ stopsFar: false });
  await server.stop();
});

const SessionSchema = z.object({ session: z.object({ id: z.string() }) });

/** A laptop on such a link, with a repository and two sessions of its own on the other machine. */
async function stageOver(
  link: (typeof LINKS)[number],
  cuts: Cuts,
  onTestFinished: TestContext['onTestFinished'],
): Promise<CutFixture> {
  const { delayMs, jitterMs, index } = link;
  const near = new NearMachine(
    server,
    server.overLink({ delayMs, jitterMs, seed: SEED + index, cutsFile: cuts.file }),
  );
  onTestFinished(() => near.dispose({ stopsFar: false }));
  const run = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await near.run(...args, '--host', 'far', '--json');
    if (code !== 0) throw new Error(`${args.join(' ')}: ${stderr}`);
    return stdout;
  };
  const projects = `${near.home}-projects`;
  onTestFinished(() => rmSync(projects, { recursive: true, force: true }));
  const project = join(projects, `work-${String(index)}`);
  mkdirSync(project, { recursive: true });
  writeFileSync(
    join(project, 'holdfast.yaml'),
    `name: work-${String(index)}\nagent: { protocol: command, command: [sh] }\npersistence: persistent\n`,
  );
  writeFileSync(join(project, 'changed.txt'), 'before\n');
  writeFileSync(join(project, 'large.txt'), 'small\n');
  writeFileSync(join(project, '.gitignore'), 'turns\nsaved\nsnapshotted\n');
  for (const args of [
    ['init', '-q', '-b', 'main'],
    ['add', '.'],
    ['commit', '-q', '-m', 'first'],
  ])
    execFileSync('git', ['-c', 'user.name=A', '-c', 'user.email=a@example.org', ...args], { cwd: project });
  execFileSync('git', ['config', 'user.name', 'A'], { cwd: project });
  execFileSync('git', ['config', 'user.email', 'a@example.org'], { cwd: project });
  await run('deploy', project);
  registerHome(execFileSync('cat', [join(server.farHome, 'id')], { encoding: 'utf8' }).trim());
  const asks = join(projects, `asks-${String(index)}`);
  mkdirSync(asks);
  writeFileSync(
    join(asks, 'holdfast.yaml'),
    `name: asks-${String(index)}\npersistence: persistent\nworkspace: { seed: false }\n` +
      'agent: { protocol: acp, command: [node, /agent/agent.mjs], state: [.acp-agent] }\n',
  );
  copyFileSync(AGENT, join(asks, 'agent.mjs'));
  await run('deploy', asks);
  const session = SessionSchema.parse(JSON.parse(await run('session', 'create', `work-${String(index)}`)));
  const asking = SessionSchema.parse(JSON.parse(await run('session', 'create', `asks-${String(index)}`)));
  await run('prompt', session.session.id, 'echo by the agent > changed.txt; touch turns');
  const client = near.client();
  const { peer: far } = await connectTo(server.farHome);
  onTestFinished(() => {
    client.close();
    far.close();
  });
  return {
    ...{ near, client, far, project },
    farHome: server.farHome,
    session: session.session.id,
    asking: asking.session.id,
  };
}

describe.skipIf(SSHD === undefined).concurrent('a connection to a host that is cut (needs sshd)', () => {
  test.for(LINKS)(
    'in the middle of work keeps what was acknowledged, with $delayMs ms each way',
    { timeout: soakCount(1_800_000, 5_400_000) },
    async (link, { onTestFinished }) => {
      const random = randomOf(SEED * 31 + link.index);
      const file = join(server.folder, `cuts-${String(link.index)}`);
      const cuts = new Cuts(file);
      onTestFinished(() => rmSync(file, { force: true }));
      const stage = await stageOver(link, cuts, onTestFinished);
      let [cut, shownAsDone] = [0, 0];
      for (let n = 0; n < link.attempts; n += 1) {
        const operation = CUT_OPERATIONS[(n + link.index * 2) % CUT_OPERATIONS.length];
        if (operation === undefined) throw new Error('no operation');
        const attempt = await operation.prepare(stage, n);
        // The connection that is cut is there already: the cut falls into the operation, not into the login.
        await stage.client.call('ping', {});
        const before = cuts.made;
        const first = 1 + Math.floor(random() * operation.bytes);
        const kind = random();
        // Once; then also the login after it; or the host is away for longer than the client tries.
        const next = kind < 0.5 ? [] : kind < 0.7 ? [Math.floor(random() * 8_000)] : Array<number>(8).fill(0);
        cuts.ask([first, ...next]);
        const failure = await attempt.act().then(
          () => undefined,
          (reason: unknown) => (reason instanceof Error ? reason.message : 'an unknown error'),
        );
        const isShownAsDone = failure === undefined;
        cuts.end();
        if (cuts.made > before) cut += 1;
        if (isShownAsDone) shownAsDone += 1;
        const what = `${operation.name}, cut after ${String(first)} and ${next.join(' ')} bytes, seed ${String(SEED)}`;
        printInSoak(`${String(n)}: ${what}: ${failure ?? 'done'}`);
        // A connection that may still count is not left to the next attempt.
        if (cuts.made === before || next.length > 0) await stage.near.disconnect();
        await attempt.check(isShownAsDone).catch((cause: unknown) => {
          throw new Error(`${what}: shown as ${failure ?? 'done'}`, { cause });
        });
      }
      printInSoak(
        `${String(link.delayMs)} ms: ${String(cut)} of ${String(link.attempts)} cut, ${String(shownAsDone)} done`,
      );
      expect(cut).toBeGreaterThanOrEqual(Math.floor(link.attempts * 0.7));
    },
  );
});
