import { type PathReference, pathReferences } from '../terminals/path-references.ts';

/** Something that a check found. */
export interface Problem {
  /** As it was written. */
  readonly path: string;
  /** From 1. */
  readonly line: number;
  readonly column: number | null;
  readonly severity: 'error' | 'warning' | 'info';
  readonly message: string;
}

const MOST_PROBLEMS = 1000;
const MOST_LINE = 4000;
// Colours and cursor, titles and links; what is left of others is text.
// eslint-disable-next-line no-control-regex -- that is what they are made of
const SEQUENCES = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_]/g;

/** `  12:5  error  message  rule`, below a line that has the path. */
const BELOW_PATH = /^\s+(?<line>\d{1,7}):(?<column>\d{1,7})\s+(?<severity>error|warning)\s+(?<message>\S.*)$/;
const SEVERITY = /^(?:fatal\s+)?(?<severity>error|warning|note|info|hint)\b/i;
/** What an exception or a compiler says before or after the place. */
const MESSAGE =
  /^\s*(?:\[[^\]]{1,20}\]\s*)?(?:E\s+)?(?:uncaught\s+)?(?<kind>[A-Za-z_.]*(?:Error|Exception|Failure|Panic|Warning)|error|warning|panicked)\b(?:\[\w+\])?(?:\s\[\w+\])?:?\s*(?<text>.*)$/i;
/** How a line begins that only points at a place. */
const POINTER = /^\s*(?:-->|❯|at\s|→|File\s")/u;

/**
 * Reads what compilers, linters and test runners write, line by line, and tells of the places that it finds fault with. It knows the
 * shapes that are common (`path:1:2: message`, `path(1,2): error`, a place below or above its message, a list below its path),
 * not every tool.
 */
export class ProblemReader {
  readonly #found: (problem: Problem) => void;
  #rest = '';
  #count = 0;
  /** The path that a list stands below. */
  #path: string | null = null;
  /** A message that no place has come for yet, and the last place that no message has come for. */
  #message: { readonly text: string; readonly severity: Problem['severity'] } | null = null;
  #place: PathReference | null = null;

  constructor(found: (problem: Problem) => void) {
    this.#found = found;
  }

  read(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n/);
    // A line without an end is no line that a person reads.
    this.#rest = (lines.pop() ?? '').slice(0, MOST_LINE);
    for (const line of lines) this.#line(stripEscapeSequences(line.slice(0, MOST_LINE)));
  }

  end(): void {
    if (this.#rest !== '') this.#line(stripEscapeSequences(this.#rest));
    this.#rest = '';
  }

  #line(line: string): void {
    if (line.trim() === '') return;
    const below = BELOW_PATH.exec(line)?.groups;
    if (below !== undefined && this.#path !== null) {
      this.#tell({
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
    const place = references.find((reference) => reference.line !== null);
    if (place === undefined) this.#messageIn(line);
    else this.#placeIn(line, place);
  }

  #placeIn(line: string, place: PathReference): void {
    if (POINTER.test(line)) {
      // Of a trace the first place counts; where messages come last, as in Python, the last one.
      if (this.#message !== null) this.#tellAt(place, this.#message);
      else this.#place = place;
      return;
    }
    const after = line
      .slice(place.start + place.length)
      .replace(/^\(\d+(?:,\s?\d+)?\)/, '')
      .replace(/^[\s:)\],-]+/, '');
    const severity = SEVERITY.exec(after)?.groups?.['severity'];
    const isAtStart = line.slice(0, place.start).trim() === '';
    if (after === '' || (severity === undefined && !isAtStart)) return;
    this.#tellAt(place, { text: after, severity: severityOf(severity) });
  }

  #messageIn(line: string): void {
    const message = MESSAGE.exec(line)?.groups;
    if (message === undefined) return;
    const said = { text: line.trim().replace(/^E\s+/, ''), severity: severityOf(message['kind']) };
    if (this.#place !== null) this.#tellAt(this.#place, said);
    else this.#message = said;
  }

  #tellAt(place: PathReference, { text, severity }: { text: string; severity: Problem['severity'] }): void {
    this.#message = null;
    this.#place = null;
    const { path, line, column } = place;
    this.#tell({ path, line: line ?? 1, column, severity, message: text });
  }

  #tell(problem: Problem): void {
    this.#count += 1;
    if (this.#count <= MOST_PROBLEMS) this.#found(problem);
  }
}

/** Without escape sequences. */
export function stripEscapeSequences(text: string): string {
  return text.replace(SEQUENCES, '');
}

function severityOf(word: string | undefined): Problem['severity'] {
  if (word === undefined) return 'error';
  if (/warning$/i.test(word)) return 'warning';
  return /^(?:note|info|hint)$/i.test(word) ? 'info' : 'error';
}
