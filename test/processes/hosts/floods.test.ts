import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { NearMachine, farPath, pidsWith } from '../../fixtures/hosts/near-machine.ts';
import type { Finished } from '../../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer } from '../../fixtures/hosts/ssh-server.ts';

const FLOOD = join(import.meta.dirname, '../../fixtures/hosts/flooding-host.mjs');
/** On a busy machine the end of a supervisor there takes long. */
const CLEAN_UP_MS = 60_000;
/** What the process of the connection may take at most, MiB: at rest it has about 85, and 126 with the worst of these. */
const MAX_MIB = 200;

/** A machine whose program floods with frames of HTTP/2 once our script has said that it begins. */
async function flooding(onTestFinished: TestContext['onTestFinished'], flood: string) {
  const script = `#!/bin/sh
nonce=$(dd bs=65536 count=1 2>/dev/null | grep -o "[0-9a-f]\\{32\\}" | head -n 1)
printf '%s go 1\\n' "$nonce"
exec node '${FLOOD}' '${flood}'
`;
  const server = await SshServer.start(SSHD ?? '', { forceCommand: script, environment: farPath() });
  const near = new NearMachine(server);
  onTestFinished(async () => {
    await near.dispose({ stopsFar: false });
    await server.stop();
  }, CLEAN_UP_MS);
  return near;
}

/** Runs a command on the host. `mib`: the most memory that a process of its connection had. */
async function watched(near: NearMachine): Promise<Finished & { mib: number; seconds: number }> {
  let mib = 0;
  const timer = setInterval(() => {
    for (const pid of pidsWith(`host-connector far ${near.home}`)) mib = Math.max(mib, peakMib(pid));
  }, 20);
  const began = performance.now();
  const finished = await near.run('profiles', '--host', 'far');
  clearInterval(timer);
  return { ...finished, mib, seconds: (performance.now() - began) / 1000 };
}

function peakMib(pid: number): number {
  try {
    const [, kib] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${String(pid)}/status`, 'utf8')) ?? [];
    return Number(kib ?? 0) / 1024;
  } catch {
    return 0; // it has ended
  }
}

const ENDED_HERE =
  /^error protocol_error: far floods the connection; [^\n]+; ask whoever runs that machine[^\n]+\n$/;

/** What Node and nghttp2 refuse by themselves may be over before our limit is reached. */
const ENDED_BY_EITHER = /^error (protocol_error|connection_closed): [^\n]+\n$/;

describe.skipIf(SSHD === undefined)('a hostile machine that floods the connection (needs sshd)', () => {
  test.concurrent.for([
    ['pings', ENDED_BY_EITHER],
    ['acknowledgements', ENDED_BY_EITHER],
    ['continuations', ENDED_BY_EITHER],
    ['pushes', ENDED_BY_EITHER],
    ['settings', ENDED_BY_EITHER],
    ['windows', ENDED_HERE],
    ['priorities', ENDED_HERE],
    ['unknown frames', ENDED_HERE],
    ['resets', ENDED_HERE],
    ['answers', ENDED_HERE],
    ['large answers', ENDED_HERE],
    ['empty data', ENDED_HERE],
    ['small data', ENDED_HERE],
    // Nothing is sent that could be too much: the answer does not come in time.
    ['no window', /^error timeout: [^\n]+\n$/],
  ] as const)(
    'with %s ends with one sentence',
    { timeout: 150_000 },
    async ([flood, sentence], { expect: check, onTestFinished }) => {
      const near = await flooding(onTestFinished, flood);
      const { code, stdout, stderr, mib, seconds } = await watched(near);
      check({ code, stdout }).toEqual({ code: 1, stdout: '' });
      check(stderr).toMatch(sentence);
      check(mib).toBeLessThan(MAX_MIB);
      // Of it 15 s for an answer that does not come; without a limit it took minutes.
      check(seconds).toBeLessThan(100);
    },
  );

  test('another host works meanwhile, and the flooding one is not logged in to again at once', async ({
    onTestFinished,
  }) => {
    const near = await flooding(onTestFinished, 'windows');
    const calm = await SshServer.start(SSHD ?? '', { environment: farPath() });
    onTestFinished(() => calm.stop(), CLEAN_UP_MS);
    near.know(calm, 'calm');
    const [flooded, well] = await Promise.all([
      near.run('profiles', '--host', 'far'),
      near.run('profiles', '--host', 'calm', '--json'),
    ]);
    expect(flooded.stderr).toMatch(ENDED_HERE);
    expect(well).toEqual({ code: 0, stdout: '{"profiles":[]}\n', stderr: '' });
    const [connector] = pidsWith(`host-connector far ${near.home}`);
    expect((await near.run('profiles', '--host', 'far')).stderr).toBe(flooded.stderr);
    expect(pidsWith(`host-connector far ${near.home}`)).toEqual([connector]);
    await near.run('supervisor', 'stop', '--host', 'calm');
    await near.run('host', 'rm', 'calm');
  }, 150_000);
});
