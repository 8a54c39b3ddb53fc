import { dockerfileError } from './lines.ts';

/** Characters of a value, of what one instruction names, and of all variables of a stage. */
const LONGEST = 65_536;
const MOST = 4 * LONGEST;
/** Of a variable that the Dockerfile does not set: it may be one of the image. */
const UNKNOWN = 4096;
/** As the builder reads names: letters of every alphabet. */
const NAMED = /\$\{?([\p{L}\p{Nd}_]+)/gu;
const CUT = /\$\{[\p{L}\p{Nd}_]*[#%/]/u;
/** Quotes and escapes that every version of the builder reads alike. */
const PAIR = /([A-Za-z_][\w.-]*)=((?:"(?:[^"\\]|\\.)*"|'[^'\\]*'|\\.|[^\s"'\\])*)(?:[ \t]+|$)/y;
const OLD_FORM = /^([A-Za-z_][\w.-]*)[ \t]+(.*)$/;

/**
 * Upper bounds of how long the variables of a stage are. The engine fills them in without any limit, and values that name each other
 * double with each line.
 */
export class VariableSizes {
  readonly #environment: Map<string, number>;
  readonly #args = new Map<string, number>();

  /** `parent`: of the stage that this one begins with. Arguments are not passed on. */
  constructor(parent?: VariableSizes) {
    this.#environment = new Map(parent === undefined ? [] : parent.#environment);
  }

  /** Reads the text of an `ENV`. Errors: `profile_invalid`. */
  setEnvironment(text: string, line: number): void {
    const old = OLD_FORM.exec(text);
    const pairs: [string, string][] = old === null ? readPairs(text, line) : [[old[1] ?? '', old[2] ?? '']];
    // The values of a line are those before it.
    const sizes = pairs.map(([name, value]): [string, number] => [name, this.require(value, line)]);
    for (const [name, size] of sizes) this.#environment.set(name, size);
    this.#requireTotal(line);
  }

  /** `value`: null if the argument has none in its stage; `known`: what it is then, or instead. Errors: `profile_invalid`. */
  setArg(name: string, value: string | null, known: string | null, line: number): void {
    const size = value === null ? UNKNOWN : this.require(value, line);
    if (value !== null) readPairs(`${name}=${value}`, line);
    this.#args.set(name, known === null ? size : Math.max(known.length, value === null ? 0 : size));
    this.#requireTotal(line);
  }

  /** The longest that the text can become. Errors: `profile_invalid` above 65,536 characters. */
  require(text: string, line: number): number {
    if (CUT.test(text))
      throw dockerfileError(line, 'it has a variable in a form that is not supported', 'write `${NAME}`');
    let size = text.length;
    for (const [, name = ''] of text.matchAll(NAMED)) {
      const environment = this.#environment.get(name);
      const arg = this.#args.get(name);
      size += environment === undefined && arg === undefined ? UNKNOWN : Math.max(environment ?? 0, arg ?? 0);
      if (size > LONGEST) throw tooLong(line, LONGEST);
    }
    if (size > LONGEST) throw tooLong(line, LONGEST);
    return size;
  }

  /** Each layer of the image repeats all of them. */
  #requireTotal(line: number): void {
    let total = 0;
    for (const sizes of [this.#environment, this.#args])
      for (const [name, size] of sizes) total += name.length + size;
    if (total > MOST) throw tooLong(line, MOST);
  }
}

function readPairs(text: string, line: number): [string, string][] {
  const pairs: [string, string][] = [];
  PAIR.lastIndex = 0;
  for (let at = 0; at < text.length; at = PAIR.lastIndex) {
    PAIR.lastIndex = at;
    const found = PAIR.exec(text);
    if (found === null)
      throw dockerfileError(line, 'it is not of the form `NAME=value`, with quotes around what has spaces');
    pairs.push([found[1] ?? '', found[2] ?? '']);
  }
  return pairs;
}

function tooLong(line: number, limit: number): Error {
  return dockerfileError(
    line,
    `with the variables that it names it may have more than ${limit} characters`,
    'set fewer or shorter variables',
  );
}
