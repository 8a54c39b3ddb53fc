import type { Readable } from 'node:stream';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { BuildIo } from '../port.ts';
import { LABEL } from './labels.ts';
import { BuildLine, parseReply } from './replies.ts';

/** A longer message of the engine is none of a builder. */
const LONGEST_LINE = 4 * 2 ** 20;
const STEP = /^Step (\d+\/\d+) : ([^\n]*)/;

/** Reads what the builder says until it ends. Errors: `setup_failed` with the builder's reason. */
export async function readBuildOutput(
  answer: Readable,
  what: string,
  io: Pick<BuildIo, 'onStep' | 'onOutput' | 'signal'>,
): Promise<void> {
  const seen = { step: '', isOurs: false, isBuilt: false };
  const take = (text: string): void => {
    if (text.trim() === '') return;
    const { stream, status, error, aux } = readLine(text, what);
    if (error !== undefined) throw failedError(seen.step, error);
    if (aux !== undefined) seen.isBuilt = true;
    const output = stream ?? (status === undefined ? undefined : `${status}\n`);
    if (output === undefined) return;
    const begun = STEP.exec(output);
    if (begun !== null) {
      seen.isOurs = (begun[2] ?? '').startsWith(`LABEL ${LABEL.home}=`);
      if (!seen.isOurs) {
        seen.step = begun[2] ?? '';
        io.onStep(begun[1] ?? '');
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
