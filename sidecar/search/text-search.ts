import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import {
  SEARCH_LIMITS,
  type SearchLine,
  type SearchParams,
  type SearchSummary,
} from '../../protocol/search.ts';
import { WORKSPACE, encodeName } from '../../protocol/paths.ts';
import type { Directory } from '../files/directory.ts';
import type { OpenFile } from '../files/open-file.ts';
import { textArguments } from './arguments.ts';
import { hasBytesAt, parseRelativePath, openBeneath } from './open-beneath.ts';
import { columnsOf, cutPreview, LineSplitter } from './lines.ts';
import { Ripgrep } from './ripgrep.ts';

/** Limit of one line of ripgrep's output, which holds a whole line of a file. */
const LONGEST_LINE = 4 * 2 ** 20;
/** Lines that may wait for the client before ripgrep is paused. */
const READY_LINES = 500;
/** Limits of one page, which must fit into one message line of at most 1 MiB. */
const PAGE_LINES = 500;
const PAGE_CHARACTERS = 200_000;
const MAX_RANGES = 200;

const TextOrBytesSchema = z.union([z.object({ text: z.string() }), z.object({ bytes: z.base64() })]);
const LineSchema = z.object({
  path: TextOrBytesSchema,
  lines: TextOrBytesSchema,
  line_number: z.number().int().positive(),
  absolute_offset: z.number().int().nonnegative(),
  submatches: z.array(z.object({ start: z.number().int(), end: z.number().int() })),
});
const MessageSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('match'), data: LineSchema }),
  z.object({ type: z.literal('context'), data: LineSchema }),
  z.object({ type: z.literal('begin') }),
  z.object({ type: z.literal('end') }),
  z.object({ type: z.literal('summary') }),
]);

export interface Page {
  readonly lines: SearchLine[];
  /** Null until the last page. */
  readonly summary: SearchSummary | null;
}

/**
 * A running text search. ripgrep resolves paths, and a hostile agent can redirect those. So every line that it prints
 * is verified in the file of that name, opened through descriptors and without links, and is reported only if it is
 * there.
 */
export class TextSearch {
  readonly #folder: Directory;
  readonly #base: string;
  readonly #params: SearchParams;
  readonly #ripgrep: Ripgrep;
  readonly #timer: NodeJS.Timeout;
  readonly #lines: SearchLine[] = [];
  #open: { readonly path: string; readonly file: OpenFile | null } | null = null;
  #files = 0;
  #lastFile = '';
  #matches = 0;
  #unverified = 0;
  #stopped: 'limit' | 'time' | null = null;
  #closed = false;
  #outcome: { readonly summary: SearchSummary } | { readonly error: unknown } | null = null;
  #wakeReader: (() => void) | null = null;
  #wakeClient: (() => void) | null = null;

  /** The search owns `folder`. `base` is the folder's path in results. */
  constructor(program: string, folder: Directory, base: string, params: SearchParams) {
    this.#folder = folder;
    this.#base = base;
    this.#params = params;
    this.#ripgrep = new Ripgrep(program, textArguments(params), folder);
    this.#timer = setTimeout(() => this.#stop('time'), params.timeLimitMs ?? SEARCH_LIMITS.timeMs.default);
    void this.#run();
  }

  /**
   * The lines found so far; waits up to `waitMs` if there are none. Errors: `invalid_params` with ripgrep's message.
   */
  async next(waitMs: number, signal: AbortSignal): Promise<Page> {
    if (this.#lines.length === 0 && this.#outcome === null && waitMs > 0) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          clearTimeout(timer);
          signal.removeEventListener('abort', done);
          this.#wakeClient = null;
          resolve();
        };
        const timer = setTimeout(done, waitMs);
        signal.addEventListener('abort', done);
        this.#wakeClient = done;
      });
    }
    let characters = 0;
    let count = 0;
    for (const line of this.#lines) {
      characters += line.preview.length + line.path.length + 100 + line.ranges.length * 30;
      if (count > 0 && (count === PAGE_LINES || characters > PAGE_CHARACTERS)) break;
      count += 1;
    }
    const lines = this.#lines.splice(0, count);
    this.#wakeReader?.();
    if (this.#lines.length > 0 || this.#outcome === null) return { lines, summary: null };
    if ('error' in this.#outcome) throw this.#outcome.error;
    return { lines, summary: this.#outcome.summary };
  }

  /** Stops the search. */
  close(): void {
    this.#closed = true;
    this.#ripgrep.kill();
    this.#wakeReader?.();
  }

  #stop(why: 'limit' | 'time'): void {
    this.#stopped ??= why;
    this.#ripgrep.kill();
    this.#wakeReader?.();
  }

  async #run(): Promise<void> {
    const cutter = new LineSplitter(LONGEST_LINE);
    try {
      for await (const chunk of this.#ripgrep.stdout) {
        for (const line of cutter.push(chunk)) {
          if (this.#isOver()) break;
          this.#addLine(line);
          while (this.#lines.length >= READY_LINES && !this.#isOver()) await this.#waitForClient();
        }
        if (this.#lines.length > 0) this.#wakeClient?.();
      }
      const { code, signal, stderr } = await this.#ripgrep.exited;
      if (!this.#isOver()) {
        if (signal !== null)
          throw new HoldfastError('internal', 'The search stopped unexpectedly', { why: signal });
        // It also exits with 2, but without a message, if a file could not be read.
        if (code === 2 && stderr !== '') throw searchRejected(stderr);
      }
      const skipped = this.#unverified + cutter.skipped;
      this.#outcome = {
        summary: { matches: this.#matches, files: this.#files, stopped: this.#stopped, skipped },
      };
    } catch (error) {
      this.#outcome = { error };
    } finally {
      clearTimeout(this.#timer);
      this.#ripgrep.kill();
      this.#open?.file?.[Symbol.dispose]();
      this.#folder.close();
      this.#wakeClient?.();
    }
  }

  #isOver(): boolean {
    return this.#closed || this.#stopped !== null;
  }

  async #waitForClient(): Promise<void> {
    this.#wakeClient?.();
    await new Promise<void>((resolve) => (this.#wakeReader = resolve));
    this.#wakeReader = null;
  }

  #addLine(line: Buffer): void {
    const message = MessageSchema.parse(JSON.parse(line.toString('utf8')));
    if (message.type !== 'match' && message.type !== 'context') return;
    const { path, lines, line_number: number, absolute_offset: offset, submatches } = message.data;
    const names = parseRelativePath(bytesOf(path));
    if (names === null) return;
    const key = Buffer.concat(names.flatMap((name) => [name, SLASH])).toString('latin1');
    if (this.#open?.path !== key) {
      this.#open?.file?.[Symbol.dispose]();
      this.#open = { path: key, file: openBeneath(this.#folder, names) };
    }
    const bytes = bytesOf(lines);
    const { file } = this.#open;
    if (file === null || !hasBytesAt(file, offset, bytes)) {
      this.#unverified += 1;
      return;
    }
    if (message.type === 'match') {
      if (this.#matches === (this.#params.limit ?? SEARCH_LIMITS.results.default)) {
        this.#stop('limit');
        return;
      }
      this.#matches += 1;
      if (this.#lastFile !== key) this.#files += 1;
      this.#lastFile = key;
    }
    const text = [this.#base, ...names.map(encodeName)].join('/');
    this.#lines.push(this.#toSearchLine(text, message.type, number, bytes, submatches));
  }

  #toSearchLine(
    path: string,
    kind: SearchLine['kind'],
    line: number,
    bytes: Buffer,
    submatches: readonly { readonly start: number; readonly end: number }[],
  ): SearchLine {
    const text = bytes.toString('utf8').replace(/\r?\n$/, '');
    const offsets = submatches.slice(0, MAX_RANGES).flatMap(({ start, end }) => [start, end]);
    const columns = columnsOf(bytes, offsets);
    const ranges = [];
    for (let at = 0; at < columns.length; at += 2) {
      const end = Math.min(columns[at + 1] ?? 0, text.length);
      ranges.push({ start: Math.min(columns[at] ?? 0, end), end });
    }
    const most = this.#params.previewCharacters ?? SEARCH_LIMITS.previewCharacters.default;
    const { preview, start: previewStart } = cutPreview(text, ranges[0]?.start ?? 0, most);
    return { path, kind, line, preview, previewStart, ranges };
  }
}

const SLASH = Buffer.from('/');

function bytesOf(value: z.infer<typeof TextOrBytesSchema>): Buffer {
  return 'text' in value ? Buffer.from(value.text, 'utf8') : Buffer.from(value.bytes, 'base64');
}

export function searchRejected(complaint: string): HoldfastError {
  const why = complaint.trim().replace(/^(rg: |error: )+/i, '');
  return new HoldfastError('invalid_params', `${WORKSPACE} was not searched`, {
    why: why.length > 1000 ? `${why.slice(0, 1000)}…` : why,
    next: 'correct the pattern or the globs',
  });
}
