import { type PathReference, pathReferences } from '../terminals/path-references.ts';

/** A problem that a check reports. */
export interface Problem {
  /** As the tool wrote it. */
  readonly path: string;
  /** From 1. */
  readonly line: number;
  readonly column: number | null;
  readonly severity: 'error' | 'warning' | 'info';
  readonly message: string;
}

const MAX_PROBLEMS = 1000;
const MAX_LINE_CHARACTERS = 4000;
// CSI sequences (colours, cursor), OSC sequences (titles, links), and two-character ones.
// eslint-disable-next-line no-control-regex -- escape sequences start with a control character
const SEQUENCES = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_]/g;

/** `  12:5  error  message  rule`, below a line with the path. */
const BELOW_PATH = /^\s+(?<line>\d{1,7}):(?<column>\d{1,7})\s+(?<severity>error|warning)\s+(?<message>\S.*)$/;
const SEVERITY = /^(?:fatal\s+)?(?<severity>error|warning|note|info|hint)\b/i;
/** The message of an exception or a compiler, on a line before or after the location. */
const MESSAGE =
  /^\s*(?:\[[^\]]{1,20}\]\s*)?(?:E\s+)?(?:uncaught\s+)?(?<kind>[A-Za-z_.]*(?:Error|Exception|Failure|Panic|Warning)|error|warning|panicked)\b(?:\[\w+\])?(?:\s\[\w+\])?:?\s*(?<text>.*)$/i;
/** The start of a line that has a location and no message. */
const POINTER = /^\s*(?:-->|❯|at\s|→|File\s")/u;

/**
 * Finds problems in the output of compilers, linters and test runners, line by line. It reads the common formats
 * (`path:1:2: message`, `path(1,2): error`, a location before or after its message, a list below its path).
 */
export class ProblemReader {
  readonly #onProblem: (problem: Problem) => void;
  #rest = '';
  #count = 0;
  /** The path above a list of problems. */
  #path: string | null = null;
  /** A message that still lacks its location, and a location that still lacks its message. */
  #message: { readonly text: string; readonly severity: Problem['severity'] } | null = null;
  #location: PathReference | null = null;

  constructor(onProblem: (problem: Problem) => void) {
    this.#onProblem = onProblem;
  }

  read(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n/);
    // Bounded, because a hostile program may write a line that never ends.
    this.#rest = (lines.pop() ?? '').slice(0, MAX_LINE_CHARACTERS);
    for (const line of lines) this.#readLine(stripEscapeSequences(line.slice(0, MAX_LINE_CHARACTERS)));
  }

  end(): void {
    if (this.#rest !== '') this.#readLine(stripEscapeSequences(this.#rest));
    this.#rest = '';
  }

  #readLine(line: string): void {
    if (line.trim() === '') return;
    const below = BELOW_PATH.exec(line)?.groups;
    if (below !== undefined && this.#path !== null) {
      this.#emit({
        path: this.#path,
        line: Number(below['line']),
        column: Number(below['column']),
        severity: below['severity'] === 'warning' ? 'warning' : 'error',
        message: (below['message'] ?? '').replace(/\s{2,}/g, '  '),
      });
      return;
    }
    const references = pathReferences(line);
    const [first] = references;
    if (first?.line === null && first.length === line.trim().length) {
      this.#path = first.path;
      return;
    }
    const location = references.find((reference) => reference.line !== null);
    if (location === undefined) this.#readMessage(line);
    else this.#readLocation(line, location);
  }

  #readLocation(line: string, location: PathReference): void {
    if (POINTER.test(line)) {
      // A stack trace has the innermost call first after its message, and last before it (Python).
      if (this.#message !== null) this.#emitAt(location, this.#message);
      else this.#location = location;
      return;
    }
    const after = line
      .slice(location.start + location.length)
      .replace(/^\(\d+(?:,\s?\d+)?\)/, '')
      .replace(/^[\s:)\],-]+/, '');
    const severity = SEVERITY.exec(after)?.groups?.['severity'];
    const isAtStart = line.slice(0, location.start).trim() === '';
    if (after === '' || (severity === undefined && !isAtStart)) return;
    this.#emitAt(location, { text: after, severity: severityOf(severity) });
  }

  #readMessage(line: string): void {
    const message = MESSAGE.exec(line)?.groups;
    if (message === undefined) return;
    const read = { text: line.trim().replace(/^E\s+/, ''), severity: severityOf(message['kind']) };
    if (this.#location !== null) this.#emitAt(this.#location, read);
    else this.#message = read;
  }

  #emitAt(
    location: PathReference,
    { text, severity }: { text: string; severity: Problem['severity'] },
  ): void {
    this.#message = null;
    this.#location = null;
    const { path, line, column } = location;
    this.#emit({ path, line: line ?? 1, column, severity, message: text });
  }

  #emit(problem: Problem): void {
    this.#count += 1;
    if (this.#count <= MAX_PROBLEMS) this.#onProblem(problem);
  }
}

export function stripEscapeSequences(text: string): string {
  return text.replace(SEQUENCES, '');
}

function severityOf(word: string | undefined): Problem['severity'] {
  if (word === undefined) return 'error';
  if (/warning$/i.test(word)) return 'warning';
  return /^(?:note|info|hint)$/i.test(word) ? 'info' : 'error';
}
