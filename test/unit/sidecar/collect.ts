import { randomBytes } from 'node:crypto';
import type { HandlerResult, TurnLaunch, TurnProgress } from '../../../sidecar/wire.ts';
import { HandlerResultSchema } from '../../../sidecar/wire.ts';
import type { SidecarClient } from '../../../supervisor/workspace/sidecar-client.ts';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz234567';

export function newId(prefix: string): string {
  return `${prefix}-${[...randomBytes(16)].map((byte) => LETTERS.charAt(byte % 32)).join('')}`;
}

export function launchOf(part: Partial<TurnLaunch>): TurnLaunch {
  return { turnId: newId('turn'), kind: 'command', argv: [], env: {}, entry: null, freshTmp: false, ...part };
}

export interface Collected {
  readonly progress: TurnProgress;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly result: Buffer;
}

/** Follows a turn to its end as the supervisor does: by offsets, each byte once. Fails after `withinMs`. */
export async function follow(client: SidecarClient, turnId: string, withinMs = 20_000): Promise<Collected> {
  const parts = { stdout: [] as Buffer[], stderr: [] as Buffer[], result: [] as Buffer[] };
  const read = { stdout: 0, stderr: 0, result: 0 };
  const deadline = performance.now() + withinMs;
  for (let waitMs = 0; ; waitMs = 2000) {
    const progress = await client.turnProgress({ turnId, stdout: read.stdout, stderr: read.stderr, waitMs });
    for (const stream of ['stdout', 'stderr', 'result'] as const) {
      while (read[stream] < progress[stream]) {
        const bytes = await client.readTurn({ turnId, stream, offset: read[stream], limit: 2 ** 20 });
        if (bytes.length === 0) break;
        parts[stream].push(bytes);
        read[stream] += bytes.length;
      }
    }
    if (progress.state === 'ended' || progress.state === 'absent') {
      return {
        progress,
        stdout: Buffer.concat(parts.stdout),
        stderr: Buffer.concat(parts.stderr),
        result: Buffer.concat(parts.result),
      };
    }
    if (performance.now() > deadline) throw new Error(`${turnId} did not end: ${JSON.stringify(progress)}`);
  }
}

/** Launches, follows and forgets one turn. */
export async function runTurn(
  client: SidecarClient,
  part: Partial<TurnLaunch>,
  input: string | Buffer = '',
): Promise<Collected> {
  const launch = launchOf(part);
  await client.launchTurn(launch, Buffer.from(input));
  const collected = await follow(client, launch.turnId);
  await client.forgetTurn(launch.turnId);
  return collected;
}

export interface Handled {
  readonly answer: HandlerResult | null;
  readonly progress: TurnProgress;
  readonly stdout: string;
  readonly stderr: string;
}

/** One handler turn. The answer is null when the worker died before it gave one. */
export async function handle(
  client: SidecarClient,
  entry: string,
  input: unknown,
  part: Partial<TurnLaunch> = {},
): Promise<Handled> {
  const { progress, stdout, stderr, result } = await runTurn(
    client,
    { kind: 'handler', entry, ...part },
    JSON.stringify(input),
  );
  const answer = result.length === 0 ? null : HandlerResultSchema.parse(JSON.parse(result.toString('utf8')));
  return { answer, progress, stdout: stdout.toString('utf8'), stderr: stderr.toString('utf8') };
}

/** The value of an answer that must be a good one. */
export function outputOf({ answer, stderr }: Handled): unknown {
  if (answer?.ok !== true) throw new Error(`no good answer: ${JSON.stringify(answer)} ${stderr}`);
  return answer.output;
}

/** The error of an answer that must be a bad one. */
export function errorOf({ answer }: Handled): Extract<HandlerResult, { ok: false }>['error'] {
  if (answer?.ok !== false) throw new Error(`no error: ${JSON.stringify(answer)}`);
  return answer.error;
}

export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  withinMs = 15_000,
): Promise<void> {
  const deadline = performance.now() + withinMs;
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`${what}: not within ${String(withinMs)} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
