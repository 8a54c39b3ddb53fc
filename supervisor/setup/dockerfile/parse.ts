import { dockerfileError, type Line, readLines } from './lines.ts';
import { VariableSizes } from './sizes.ts';
import { requireShort, substitute } from './substitute.ts';

/** What a stage, or a `COPY --from`, takes its files from. */
export type Source =
  | { readonly kind: 'image'; readonly reference: string; readonly line: number }
  | { readonly kind: 'stage'; readonly index: number }
  | { readonly kind: 'scratch' };

export type Instruction =
  | { readonly kind: 'plain'; readonly text: string }
  | {
      readonly kind: 'copy';
      /** Null: the context. */
      readonly from: Source | null;
      readonly chown: string | null;
      readonly sources: readonly string[];
      readonly target: string;
    };

export interface Stage {
  readonly name: string | null;
  readonly base: Source;
  readonly instructions: readonly Instruction[];
}

export interface Dockerfile {
  /** `ARG` before the first `FROM`. */
  readonly globals: readonly string[];
  readonly stages: readonly Stage[];
  /** Instructions without an effect in a sandbox, which are left out: `CMD (line 7)`. */
  readonly ignored: readonly string[];
}

export interface ParseOptions {
  /** Values of build arguments. */
  readonly args?: Readonly<Record<string, string>>;
  /** The stage that becomes the image; default: the last one. */
  readonly target?: string | undefined;
}

/** Without an effect in a sandbox, which starts its own program, or of no use to it. */
const IGNORED: ReadonlySet<string> = new Set([
  'CMD',
  'ENTRYPOINT',
  'EXPOSE',
  'HEALTHCHECK',
  'LABEL',
  'MAINTAINER',
  'STOPSIGNAL',
  'VOLUME',
]);
const MOST_SOURCES = 1000;
const STAGE_NAME = /^[a-z][a-z0-9._-]*$/;
const ARG_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** The start of a heredoc; `<<<` and `1<<2` are none. */
const HEREDOC = /(?:^|[^<])<<-?\s*["']?[A-Za-z_]/;
const ARCHIVE = /\.(?:tar|tar\.\w+|tgz|tbz2?|txz|tzst|tlz)$/i;
const ADDRESS = /^[a-z][a-z0-9+.-]*:\/\/|^git@|^github\.com\//i;
const BUILDKIT_NEXT = 'the engine’s classic builder is used; write it without the option';

/**
 * Reads a Dockerfile for the engine's classic builder: what it means is decided here, and the engine gets what `render` makes of
 * it. Everything that would fetch an address, read an image by its id, or needs BuildKit is refused. Errors: `profile_invalid`
 * with the line.
 */
export function parseDockerfile(bytes: Uint8Array, { args = {}, target }: ParseOptions = {}): Dockerfile {
  const globals: string[] = [];
  const values = new Map<string, string>();
  const stages: { name: string | null; base: Source; instructions: Instruction[] }[] = [];
  const ignored: string[] = [];
  const sizes: VariableSizes[] = [];
  let sources = 0;
  for (const line of readLines(bytes)) {
    const { keyword, rest, number } = line;
    const stage = stages.at(-1);
    if (rest === '') throw dockerfileError(number, `${keyword} needs an argument`);
    if (keyword === 'FROM') {
      const { name, base } = readFrom(line, values, stages);
      sizes.push(new VariableSizes(base.kind === 'stage' ? sizes[base.index] : undefined));
      stages.push({ name, base, instructions: [] });
    } else if (keyword === 'ARG' && stage === undefined) {
      const [name, value] = readArg(line);
      const text = value === null ? null : requireShort(unquoted(value), number);
      const given = ownValue(args, name) ?? (text === null ? null : substitute(text, values, number));
      if (given !== null) values.set(name, requireShort(given, number));
      globals.push(`ARG ${rest}`);
    } else if (stage === undefined) {
      throw dockerfileError(number, `${keyword} stands before the first FROM`);
    } else if (IGNORED.has(keyword)) ignored.push(`${keyword} (line ${number})`);
    else {
      const instruction = readInstruction(line, stages);
      requireSizes(line, instruction, sizes.at(-1) ?? new VariableSizes(), (name) => {
        const given = ownValue(args, name) ?? values.get(name) ?? null;
        return given === null ? null : requireShort(given, number);
      });
      sources += instruction.kind === 'copy' ? instruction.sources.length : 0;
      if (sources > MOST_SOURCES)
        throw dockerfileError(
          number,
          `its COPY and ADD have more than ${MOST_SOURCES} sources`,
          'copy folders',
        );
      stage.instructions.push(instruction);
    }
  }
  const last =
    target === undefined ? stages.length - 1 : stages.findIndex(({ name }) => name === target.toLowerCase());
  if (stages.length === 0) throw dockerfileError(1, 'it has no FROM');
  if (last < 0) throw dockerfileError(1, `it has no stage ${target ?? ''}`);
  return { globals, stages: stages.slice(0, last + 1), ignored };
}

function readFrom(
  { rest, number }: Line,
  values: ReadonlyMap<string, string>,
  stages: readonly { readonly name: string | null }[],
): { name: string | null; base: Source } {
  if (rest.startsWith('--'))
    throw dockerfileError(
      number,
      'FROM has an option',
      'omit it; images are those of the engine’s own platform',
    );
  const words = rest.split(/\s+/);
  const [image = '', as, name] = words;
  if (!(words.length === 1 || (words.length === 3 && as?.toUpperCase() === 'AS')))
    throw dockerfileError(number, 'FROM is not of the form `FROM image` or `FROM image AS name`');
  const stage = name?.toLowerCase() ?? null;
  if (stage !== null && !STAGE_NAME.test(stage))
    throw dockerfileError(number, `${name ?? ''} cannot be the name of a stage`);
  if (stage !== null && stages.some((one) => one.name === stage))
    throw dockerfileError(number, `there are two stages ${stage}`);
  const base = sourceOf(substitute(image, values, number), stages, number, false);
  return { name: stage, base };
}

/** `byNumber`: a number is a stage, counted from 0. */
function sourceOf(
  reference: string,
  stages: readonly { readonly name: string | null }[],
  number: number,
  byNumber: boolean,
): Source {
  if (!byNumber && reference.toLowerCase() === 'scratch') return { kind: 'scratch' };
  const named = stages.findIndex(({ name }) => name === reference.toLowerCase());
  if (named >= 0) return { kind: 'stage', index: named };
  if (byNumber && /^\d+$/.test(reference)) {
    const index = Number(reference);
    if (index < stages.length) return { kind: 'stage', index };
    throw dockerfileError(number, `there is no stage ${reference} before it`);
  }
  if (!/^[A-Za-z0-9](?:[A-Za-z0-9_.:@/-]*[A-Za-z0-9_])?$/.test(reference) || reference.length > 255)
    throw dockerfileError(number, `${JSON.stringify(reference)} does not name an image`);
  if (/^sha256:|^[0-9a-f]{12,}$/i.test(reference))
    throw dockerfileError(number, 'an image is named by its id', 'name it as registry/name:tag');
  return { kind: 'image', reference, line: number };
}

function readArg({ rest, number }: Line): [string, string | null] {
  const at = rest.indexOf('=');
  const name = at < 0 ? rest : rest.slice(0, at);
  if (!ARG_NAME.test(name) || /\s/.test(unquotedSpaces(rest)))
    throw dockerfileError(
      number,
      'ARG is not of the form `ARG name` or `ARG name=value`',
      'use one ARG for each name',
    );
  return [name, at < 0 ? null : rest.slice(at + 1)];
}

function unquotedSpaces(text: string): string {
  return text.replace(/"[^"\\]*"|'[^']*'/g, '');
}

function unquoted(value: string): string {
  return /^(["'])[^"'\\]*\1$/.test(value) ? value.slice(1, -1) : value;
}

function readInstruction(line: Line, stages: readonly Stage[]): Instruction {
  const { keyword, rest, number } = line;
  switch (keyword) {
    case 'RUN':
      return { kind: 'plain', text: readRun(line) };
    case 'COPY':
    case 'ADD':
      return readCopy(line, stages);
    case 'ARG':
      readArg(line);
      return { kind: 'plain', text: `ARG ${rest}` };
    case 'ENV':
    case 'USER':
    case 'WORKDIR':
      return { kind: 'plain', text: `${keyword} ${rest}` };
    case 'SHELL': {
      const words = jsonWords(rest);
      if (words === null || words.length === 0)
        throw dockerfileError(number, 'SHELL needs a list such as ["/bin/bash", "-c"]');
      return { kind: 'plain', text: `SHELL ${JSON.stringify(words)}` };
    }
    case 'ONBUILD':
      throw dockerfileError(
        number,
        'ONBUILD is for images that others build on',
        'write the instruction itself',
      );
    default:
      throw dockerfileError(number, `there is no instruction ${keyword}`);
  }
}

/** What the engine fills in stays bounded. Errors: `profile_invalid`. */
function requireSizes(
  { keyword, rest, number }: Line,
  instruction: Instruction,
  sizes: VariableSizes,
  valueOf: (arg: string) => string | null,
): void {
  if (instruction.kind === 'copy')
    sizes.require([instruction.chown ?? '', ...instruction.sources, instruction.target].join(' '), number);
  else if (keyword === 'ENV') sizes.setEnvironment(rest, number);
  else if (keyword === 'USER' || keyword === 'WORKDIR') sizes.require(rest, number);
  else if (keyword === 'ARG') {
    const [name, value] = readArg({ keyword, rest, number });
    sizes.setArg(name, value, valueOf(name), number);
  }
}

function readRun({ rest, number }: Line): string {
  if (rest.startsWith('--'))
    throw dockerfileError(number, `RUN with ${rest.split(/[\s=]/)[0] ?? ''} needs BuildKit`, BUILDKIT_NEXT);
  const words = jsonWords(rest);
  if (words !== null && words.length > 0) return `RUN ${JSON.stringify(words)}`;
  if (HEREDOC.test(rest))
    throw dockerfileError(
      number,
      'it has what looks like the start of a here-document, which needs BuildKit',
      'write it with && and \\, or copy a script and run it',
    );
  return `RUN ${rest}`;
}

function readCopy({ keyword, rest, number }: Line, stages: readonly Stage[]): Instruction {
  let left = rest;
  let chown: string | null = null;
  let from: Source | null = null;
  for (let option = OPTION.exec(left); option !== null; option = OPTION.exec(left)) {
    const [all, name = '', value = ''] = option;
    left = left.slice(all.length).trimStart();
    if (name === 'chown' && chown === null && /^[\w${}.:-]+$/.test(value)) chown = value;
    else if (name === 'from' && from === null && keyword === 'COPY' && value !== '') {
      if (value.includes('$'))
        throw dockerfileError(number, '--from has a variable', 'name the stage or the image');
      // The stage that it stands in is not complete.
      from = sourceOf(value, stages.slice(0, -1), number, true);
    } else throw dockerfileError(number, `${keyword} with --${name} cannot be built`, BUILDKIT_NEXT);
  }
  if (HEREDOC.test(left))
    throw dockerfileError(number, 'here-documents need BuildKit', 'copy a file instead');
  const words = jsonWords(left) ?? left.split(/\s+/);
  const target = words.at(-1) ?? '';
  const sources = words.slice(0, -1);
  if (sources.length === 0 || words.includes(''))
    throw dockerfileError(number, `${keyword} needs a source and a target`);
  for (const source of keyword === 'ADD' ? sources : []) {
    if (ADDRESS.test(source) || source.includes('://'))
      throw dockerfileError(
        number,
        'ADD of an address would be fetched by the engine, past every rule',
        'fetch it with RUN, and list the host in `setup.egress`',
      );
    if (source.includes('$'))
      throw dockerfileError(number, 'ADD has a variable in its source, which may be an address', 'use COPY');
    if (ARCHIVE.test(source))
      throw dockerfileError(
        number,
        'ADD would have the engine unpack an archive, without any limit',
        'use COPY, and unpack it with RUN',
      );
  }
  // Like COPY it takes files as they are, and unlike ADD nothing else.
  return { kind: 'copy', from, chown, sources, target };
}
const OPTION = /^--([a-z][a-z-]*)(?:=(\S*))?(?=\s|$)/i;

/** The words of an instruction in the form of JSON; null for the other form. */
function jsonWords(text: string): string[] | null {
  if (!text.startsWith('[')) return null;
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.every((word) => typeof word === 'string') ? value : null;
  } catch {
    return null;
  }
}

function ownValue(args: Readonly<Record<string, string>>, name: string): string | null {
  return Object.hasOwn(args, name) ? (args[name] ?? null) : null;
}
