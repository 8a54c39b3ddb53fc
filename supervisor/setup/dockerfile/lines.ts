import { HoldfastError } from '../../../protocol/errors.ts';

/** An instruction on one line: its comments are gone and its continuations are joined. */
export interface Line {
  /** Where it begins, from 1. */
  readonly number: number;
  readonly keyword: string;
  /** Without the keyword, trimmed. */
  readonly rest: string;
}

const MAX_BYTES = 256 * 1024;
const MAX_INSTRUCTIONS = 300;
/** With its continuations. */
const LONGEST_LINE = 65_536;
const DIRECTIVE = /^#\s*([A-Za-z][A-Za-z0-9]*)\s*=(.*)$/;
const CONTINUES = /\\[ \t]*$/;
const COMMENT = /^\s*#/;

/** Errors: `profile_invalid` with the line. */
export function dockerfileError(number: number, why: string, next?: string): HoldfastError {
  return new HoldfastError('profile_invalid', 'The Dockerfile cannot be built', {
    why: `line ${number}: ${why}`,
    next: next ?? 'correct the Dockerfile and deploy again',
    details: { line: number },
  });
}

/** Reads a Dockerfile into lines. What the builders of engines read differently is refused. Errors: `profile_invalid`. */
export function readLines(bytes: Uint8Array): Line[] {
  if (bytes.length > MAX_BYTES) throw dockerfileError(1, `it has more than ${MAX_BYTES / 1024} KiB`);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw dockerfileError(1, 'it is not UTF-8 text');
  }
  const physical = text.split(/\r?\n/);
  const strange = physical.findIndex((line) => /[\0\r\v\f\u0085\u2028\u2029]/.test(line));
  if (strange >= 0) throw dockerfileError(strange + 1, 'it contains a control character');
  requirePlainDirectives(physical);
  const found: Line[] = [];
  for (let at = 0; at < physical.length; at += 1) {
    const first = physical[at] ?? '';
    if (isSkipped(first)) continue;
    const number = at + 1;
    const [joined, last] = join(physical, at, number);
    at = last;
    if (joined.length > LONGEST_LINE)
      throw dockerfileError(number, `it has more than ${LONGEST_LINE / 1024} Ki characters`);
    found.push(instruction(joined, number));
    if (found.length > MAX_INSTRUCTIONS)
      throw dockerfileError(number, `it has more than ${MAX_INSTRUCTIONS} instructions`);
  }
  return found;
}

function isSkipped(line: string): boolean {
  return line.trim() === '' || COMMENT.test(line);
}

/** Directives are the comments before anything else. */
function requirePlainDirectives(physical: readonly string[]): void {
  for (const [at, line] of physical.entries()) {
    const found = DIRECTIVE.exec(line.trimStart());
    if (found === null) return;
    const name = (found[1] ?? '').toLowerCase();
    if (name === 'syntax')
      throw dockerfileError(
        at + 1,
        '`# syntax=` names another builder, which the engine would fetch and run',
        'remove the line; the instructions of the classic builder can be used',
      );
    if (name === 'escape' && found[2]?.trim() !== '\\')
      throw dockerfileError(
        at + 1,
        '`# escape=` is for Windows',
        'remove the line and continue lines with \\',
      );
    if (name !== 'escape' && name !== 'check') return;
  }
}

/** The instruction that begins at `at`, and the last line of it. */
function join(physical: readonly string[], at: number, number: number): [string, number] {
  let line = (physical[at] ?? '').trimStart();
  let last = at;
  const parts: string[] = [];
  while (CONTINUES.test(line)) {
    parts.push(line.replace(CONTINUES, ''));
    do last += 1;
    while (last < physical.length && isSkipped(physical[last] ?? ''));
    if (last >= physical.length)
      throw dockerfileError(number, 'its last line continues, and nothing follows');
    line = physical[last] ?? '';
  }
  return [parts.join('') + line, last];
}

function instruction(joined: string, number: number): Line {
  const found = /^([A-Za-z]+)(?:[ \t]+(.*))?$/.exec(joined.trimEnd());
  if (found === null) throw dockerfileError(number, 'it does not begin with an instruction');
  return { number, keyword: (found[1] ?? '').toUpperCase(), rest: (found[2] ?? '').trim() };
}
