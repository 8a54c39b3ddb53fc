import { randomBytes } from 'node:crypto';
import type { Readable, Writable } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Host } from '../base/host-list.ts';
import type { Archive } from './archives.ts';
import { START_COMMAND, farScript, receiveCommand } from './far-script.ts';
import { MarkedLines } from './marked-lines.ts';
import { architectureOf, obstacle, SurveyReader } from './survey.ts';
import type { Architecture, Survey } from './survey.ts';

/** From the login to the first line: a person may have to answer questions of ssh in between. */
const LOGIN_MS = 10 * 60_000;
const SURVEY_MS = 60_000;
const UNPACK_MS = 5 * 60_000;
/** For one chunk to leave: a line that is slower than this is of no use. */
const CHUNK_MS = 5 * 60_000;
/** For everything after the login: a machine that answers often and never ends is given up. */
const PREPARATION_MS = 60 * 60_000;
const CHUNK_BYTES = 64 * 1024;

export interface PreparationOptions {
  readonly host: Host;
  readonly output: Readable;
  readonly input: Writable;
  readonly build: string;
  readonly nodeVersion: string;
  readonly program: () => Promise<Archive>;
  readonly node: (architecture: Architecture) => Promise<Archive>;
  readonly onStage: (stage: string) => void;
}

export type Prepared =
  { readonly survey: Survey } | { readonly ended: true; readonly skipped: string; readonly heard: boolean };

/**
 * Brings the program to a machine whose `sh` has the streams, unless it is there, and starts it. Afterwards the streams
 * belong to the program. `ended`: the other side ended before that. Errors: why the program cannot run there.
 */
export async function prepare(options: PreparationOptions): Promise<Prepared> {
  const nonce = randomBytes(16).toString('hex');
  const lines = new MarkedLines(options.output, nonce);
  const reader = new SurveyReader();
  options.input.write(farScript({ nonce, build: options.build, nodeVersion: options.nodeVersion }));
  let heard = false;
  let until = Infinity;
  for (;;) {
    if (Date.now() > until) throw tooSlow(options.host);
    const line = await lines.next(heard ? SURVEY_MS : LOGIN_MS);
    if (line === null) return { ended: true, skipped: lines.skipped, heard };
    if (!heard) until = Date.now() + PREPARATION_MS;
    heard = true;
    if (line.word === 'go') {
      lines.release();
      return { survey: reader.survey };
    }
    if (line.word === 'failed') throw failed(options.host, line.text);
    if (line.word === 'end') break;
    reader.add(line.word, line.text);
  }
  const { survey } = reader;
  const problem = obstacle(options.host, survey);
  if (problem !== undefined) throw problem;
  for (const what of survey.missing) {
    if (what === 'node') {
      options.onStage(`Fetching Node ${options.nodeVersion} for ${options.host.name}`);
      const archive = await options.node(architectureOf(survey) ?? 'x64');
      await send(options, lines, { what: 'node', archive, until });
    } else if (what === 'program') {
      await send(options, lines, { what: 'program', archive: await options.program(), until });
    }
  }
  options.input.write(START_COMMAND);
  options.onStage(`Starting Holdfast on ${options.host.name}`);
  const started = await lines.next(UNPACK_MS);
  if (started?.word === 'failed') throw failed(options.host, started.text);
  if (started?.word !== 'go') return { ended: true, skipped: lines.skipped, heard };
  lines.release();
  return { survey };
}

async function send(
  { host, input, onStage }: PreparationOptions,
  lines: MarkedLines,
  {
    what,
    archive,
    until,
  }: { readonly what: 'node' | 'program'; readonly archive: Archive; readonly until: number },
): Promise<void> {
  const { bytes, sha256 } = archive;
  const title = what === 'node' ? 'Node' : 'the program';
  input.write(receiveCommand(what, bytes.length, sha256));
  await expect(host, lines, 'send', SURVEY_MS);
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    onStage(`Sending ${title} to ${host.name}: ${Math.floor((100 * at) / bytes.length)} %`);
    const isTaken = input.write(bytes.subarray(at, at + CHUNK_BYTES));
    // A stream that is closed already takes nothing and says so to nobody.
    if (input.destroyed) break;
    if (!isTaken && !(await drained(input, Math.min(CHUNK_MS, until - Date.now())))) throw tooSlow(host);
  }
  onStage(`Unpacking ${title} on ${host.name}`);
  await expect(host, lines, 'done', UNPACK_MS);
}

/** False: it took too long. */
function drained(stream: Writable, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (isDrained: boolean): void => {
      clearTimeout(timer);
      for (const event of ['drain', 'close', 'error']) stream.off(event, settle);
      resolve(isDrained);
    };
    const settle = (): void => end(true);
    const timer = setTimeout(() => end(false), Math.max(0, timeoutMs));
    for (const event of ['drain', 'close', 'error']) stream.once(event, settle);
  });
}

function tooSlow(host: Host): HoldfastError {
  return new HoldfastError('timeout', `Holdfast cannot be brought to ${host.name}`, {
    why: 'it does not read its input in time',
    next: 'see what `holdfast host doctor` says about it',
  });
}

async function expect(host: Host, lines: MarkedLines, word: string, timeoutMs: number): Promise<void> {
  const line = await lines.next(timeoutMs);
  if (line?.word === word) return;
  if (line !== null) throw failed(host, line.word === 'failed' ? line.text : 'it answered out of turn');
  throw new HoldfastError('connection_closed', `The connection to ${host.name} ended`, {
    why: 'it broke while Holdfast was brought there',
    next: 'try again',
  });
}

function failed(host: Host, why: string): HoldfastError {
  return new HoldfastError('internal', `Holdfast cannot be brought to ${host.name}`, {
    why: why.slice(0, 500),
    next: 'see what `holdfast host doctor` says about it',
  });
}
