import type { Readable } from 'node:stream';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { BuildIo } from '../port.ts';
import { BuildLine, parseReply } from './replies.ts';

/** A longer message of the engine is none of a builder. */
const LONGEST_LINE = 4 * 2 ** 20;
const STEP = /^Step (\d{1,4})\/(\d{1,4}) : /;

/**
 * Reads what the builder says until it ends. A program may write what looks like a step: only the one that comes next counts, and what
 * it does is known from `steps`, the instructions that the builder got. Errors: `setup_failed` with the builder's reason. */
export async function readBuildOutput(
  answer: Readable,
  what: string,
  steps: readonly string[],
  io: Pick<BuildIo, 'onStep' | 'onOutput' | 'signal'>,
): Promise<void> {
  const seen = { number: 0, step: '', isOurs: false, isBuilt: false };
  const take = (text: string): void => {
    if (text.trim() === '') return;
    const { stream, status, error, aux } = readLine(text, what);
    if (error !== undefined) throw failedError(seen.step, error);
    if (aux !== undefined) seen.isBuilt = true;
    const output = stream ?? (status === undefined ? undefined : `${status}\n`);
    if (output === undefined) return;
    const [, number, of] = STEP.exec(output) ?? [];
    if (Number(number) === seen.number + 1 && Number(of) === steps.length) {
      seen.number += 1;
      const instruction = steps[seen.number - 1] ?? '';
      // Those of a Dockerfile are left out.
      seen.isOurs = instruction.startsWith('LABEL ');
      if (!seen.isOurs) {
        seen.step = instruction;
        io.onStep(`${seen.number}/${steps.length}`);
      }
    }
    if (!seen.isOurs) io.onOutput(Buffer.from(output), 'stdout');
  };
  const abort = (): void => void answer.destroy(io.signal.reason as Error);
  io.signal.addEventListener('abort', abort, { once: true });
  try {
    if (io.signal.aborted) abort();
    let rest = '';
    answer.setEncoding('utf8');
    for await (const chunk of answer) {
      const lines = (rest + String(chunk)).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > LONGEST_LINE) throw failedError(seen.step, 'the engine sent a line that is too long');
      for (const line of lines) take(line);
    }
    take(rest);
  } finally {
    io.signal.removeEventListener('abort', abort);
    answer.destroy();
  }
  if (!seen.isBuilt) throw failedError(seen.step, 'the engine stopped before the image was complete');
}

function readLine(text: string, what: string): ReturnType<typeof BuildLine.parse> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = null;
  }
  return parseReply(BuildLine, what, value);
}

function failedError(step: string, why: string): HoldfastError {
  const code = /returned a non-zero code: (\d+)$/.exec(why)?.[1];
  return new HoldfastError('setup_failed', 'The Dockerfile could not be built', {
    why: code === undefined ? why.slice(0, 2000) : `\`${step.slice(0, 200)}\` ended with ${code}`,
    details: { step: step.slice(0, 200), exitCode: code === undefined ? null : Number(code) },
  });
}
