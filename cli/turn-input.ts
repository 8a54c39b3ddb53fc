import { HoldfastError } from '../protocol/errors.ts';
import { type TurnKind, inputOfKind } from '../protocol/turn-kinds.ts';
import type { CliIo } from './io.ts';
import { findJsonError } from './render/json.ts';
import { formatSize } from './render/quantity.ts';

/** Maximum payload of one protocol message. */
const MAX_INPUT_BYTES = 4 * 2 ** 20;

/** The operand itself, or the content of standard input if it is `-`. */
export async function readInput(io: CliIo, operand: string): Promise<Buffer> {
  if (operand !== '-') return checked(Buffer.from(operand, 'utf8'));
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of io.stdin as AsyncIterable<string | Buffer>) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, 'utf8') : chunk;
    chunks.push(bytes);
    length += bytes.length;
    if (length > MAX_INPUT_BYTES) break;
  }
  return checked(Buffer.concat(chunks));
}

function checked(input: Buffer): Buffer {
  if (input.length <= MAX_INPUT_BYTES) return input;
  throw new HoldfastError('invalid_params', 'The input is too large', {
    why: `the limit is ${formatSize(MAX_INPUT_BYTES)}`,
    next: 'put it into a file in the workspace and tell the agent its path',
  });
}

/** Checks that the input of a handler is JSON. The error names the position and shows how to quote for the shell. */
export function validateInput(input: Buffer, kind: TurnKind | undefined, program: string): void {
  if (inputOfKind(kind) !== 'json') return;
  const problem = findJsonError(input.toString('utf8'));
  if (problem === undefined) return;
  throw new HoldfastError('invalid_params', 'The input is not valid JSON', {
    why: `${problem.why} (line ${problem.line}, column ${problem.column})`,
    next: `quote it for the shell, as in ${program} '{"key": "value"}', or pass - and pipe it in`,
    details: { line: problem.line, column: problem.column },
  });
}
