import { open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { StringDecoder } from 'node:string_decoder';
import { homePaths } from '../protocol/home.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Context } from './context.ts';
import { EXIT } from './failure.ts';
import { formatJson } from './render/json.ts';
import type { Style } from './render/style.ts';
import { sanitizeLine } from './render/text.ts';

const POLL_MS = 250;
const CHUNK_BYTES = 256 * 1024;

/** Prints the last lines of the supervisor's log and, with `follow`, new lines until ^C. Follows rotated logs. */
export async function showLog(
  context: Context,
  options: { readonly lines: number; readonly follow: boolean },
): Promise<number> {
  if (context.host !== null) {
    throw new HoldfastError('not_supported', `The log of ${context.host} cannot be shown from here`, {
      why: 'only files of this machine can be read',
      next: `run \`holdfast supervisor logs\` on ${context.host}, or \`holdfast host doctor ${context.host}\` here`,
    });
  }
  const { log } = homePaths(context.home);
  const file = await openLog(log);
  if (file === undefined && !options.follow) {
    throw new HoldfastError('not_found', 'There is no supervisor log yet', {
      why: `no supervisor has been started for ${context.home}`,
    });
  }
  const print = async (line: string) => {
    if (line === '') return;
    if (context.json) await context.stdout.write(`${line}\n`);
    else await context.print(readableLine(line, context.style));
  };
  const tail = file === undefined ? { lines: [], end: 0, rest: '' } : await lastLines(file, options.lines);
  for (const line of tail.lines) await print(line);
  if (!options.follow) {
    if (tail.rest !== '') await print(tail.rest);
    await file?.close();
    return EXIT.done;
  }
  return followLog(context, log, { file, offset: tail.end, rest: tail.rest }, print);
}

async function openLog(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, 'r');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw HoldfastError.from(error, 'The log cannot be read');
  }
}

/** Reads backwards in chunks until there are enough lines, so that a large log costs no more than its tail. */
async function lastLines(
  file: FileHandle,
  count: number,
): Promise<{ lines: string[]; end: number; rest: string }> {
  const { size } = await file.stat();
  const pieces: Buffer[] = [];
  let start = size;
  let ends = 0;
  while (start > 0 && ends <= count) {
    const length = Math.min(CHUNK_BYTES, start);
    const piece = Buffer.alloc(length);
    const { bytesRead } = await file.read(piece, 0, length, start - length);
    if (bytesRead < length) break; // truncated meanwhile
    start -= length;
    for (const byte of piece) if (byte === 0x0a) ends += 1;
    pieces.unshift(piece);
  }
  const lines = Buffer.concat(pieces).toString('utf8').split('\n');
  const rest = lines.pop() ?? '';
  return { lines: lines.slice(-count), end: size, rest };
}

interface Place {
  readonly file: FileHandle | undefined;
  readonly offset: number;
  /** The beginning of an incomplete line. */
  readonly rest: string;
}

async function followLog(
  context: Context,
  path: string,
  from: Place,
  print: (line: string) => Promise<void>,
): Promise<number> {
  let { file, offset, rest } = from;
  let decoder = new StringDecoder('utf8');
  const stopped = Promise.withResolvers<'stopped'>();
  const release = context.handleInterrupts(() => stopped.resolve('stopped'));
  const piece = Buffer.alloc(CHUNK_BYTES);
  const readOn = async (open: FileHandle) => {
    for (;;) {
      const { bytesRead } = await open.read(piece, 0, CHUNK_BYTES, offset);
      if (bytesRead === 0) return;
      offset += bytesRead;
      const lines = (rest + decoder.write(piece.subarray(0, bytesRead))).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) await print(line);
    }
  };
  try {
    for (;;) {
      if (file !== undefined) await readOn(file);
      const next = await openLog(path);
      if (next !== undefined && (file === undefined || (await next.stat()).ino !== (await file.stat()).ino)) {
        // The log was rotated: first print what was written to the old file after the last read.
        if (file !== undefined) await readOn(file);
        await file?.close();
        [file, offset, rest, decoder] = [next, 0, '', new StringDecoder('utf8')];
        continue;
      }
      await next?.close();
      let timer: NodeJS.Timeout | undefined;
      const pause = new Promise<'again'>((resolve) => {
        timer = setTimeout(() => resolve('again'), POLL_MS);
      });
      const what = await Promise.race([pause, stopped.promise]);
      clearTimeout(timer);
      if (what === 'stopped') return EXIT.cancelled;
    }
  } finally {
    release();
    await file?.close();
  }
}

/** `2026-01-01 12:00:00.000 warn  engine  message name=value`. A line that is not JSON is printed unchanged. */
export function readableLine(line: string, style: Style): string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    return sanitizeLine(line);
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return sanitizeLine(line);
  const { time, level, module, message, ...fields } = parsed as Record<string, unknown>;
  const word = (value: unknown) => (typeof value === 'string' ? sanitizeLine(value) : '');
  const paint = level === 'error' ? style.red : level === 'warn' ? style.yellow : style.cyan;
  const rest = Object.entries(fields)
    .map(
      ([name, value]) =>
        `${sanitizeLine(name)}=${typeof value === 'string' ? sanitizeLine(value) : formatJson(value)}`,
    )
    .join(' ');
  return [
    style.dim(word(time).replace('T', ' ').replace('Z', '')),
    paint(word(level).padEnd(5)),
    style.bold(word(module)),
    word(message),
    style.dim(rest),
  ]
    .filter((part) => part !== '')
    .join(' ');
}
