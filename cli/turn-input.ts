import { HoldfastError } from '../protocol/errors.ts';
import type { CliIo } from './io.ts';
import { findJsonError } from './render/json.ts';
import { formatSize } from './render/quantity.ts';
import type { AgentKind } from './turn-output.ts';

/** What one message may carry; larger input belongs into a file of the workspace. */
const LARGEST_INPUT = 4 * 2 ** 20;

/** The operand as it stands, or standard input where it is `-`. */
export async function readInput(io: CliIo, operand: string): Promise<Buffer> {
  if (operand !== '-') return checked(Buffer.from(operand, 'utf8'));
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of io.stdin as AsyncIterable<string | Buffer>) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, 'utf8') : chunk;
    chunks.push(bytes);
    length += bytes.length;
    if (length > LARGEST_INPUT) break;
  }
  return checked(Buffer.concat(chunks));
}

function checked(input: Buffer): Buffer {
  if (input.length <= LARGEST_INPUT) return input;
  throw new HoldfastError('invalid_params', 'The input is not sent', {
    why: `it is larger than ${formatSize(LARGEST_INPUT)}`,
    next: 'put it into a file of the workspace and give the agent its path',
  });
}

/** A handler's input is JSON; the mistake is shown where it is, with how a shell wants it quoted. */
export function validateInput(input: Buffer, kind: AgentKind | undefined, program: string): void {
  if (kind !== 'handler') return;
  const problem = findJsonError(input.toString('utf8'));
  if (problem === undefined) return;
  throw new HoldfastError('invalid_params', 'The input is not JSON', {
    why: `${problem.why} (line ${problem.line}, column ${problem.column})`,
    next: `quote it for the shell, as in ${program} '{"key": "value"}', or pass - and pipe it in`,
    details: { line: problem.line, column: problem.column },
  });
}
