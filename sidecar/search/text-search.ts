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

/** Of one line that ripgrep prints, which holds a whole line of a file. */
const LONGEST_LINE = 4 * 2 ** 20;
/** Lines that wait to be taken before ripgrep has to wait. */
const READY_LINES = 500;
/** Lines and characters of one page: it has to fit into one line of at most 1 MiB. */
const PAGE_LINES = 500;
const PAGE_CHARACTERS = 200_000;
const MOST_RANGES = 200;

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
 * A search under way. ripgrep goes through paths, and a hostile agent can lead those anywhere: so each line it prints is looked up in
 * the file of that name in the workspace, through descriptors and no link, and told of only if it is there.
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
  #wakeTaker: (() => void) | null = null;

  /** `folder` is the search's from now on; `base` is how its path begins. */
  constructor(program: string, folder: Directory, base: string, params: SearchParams) {
    this.#folder = folder;
    this.#base = base;
    this.#params = params;
    this.#ripgrep = new Ripgrep(program, textArguments(params), folder);
    this.#timer = setTimeout(() => this.#stop('time'), params.timeLimitMs ?? SEARCH_LIMITS.timeMs.default);
    void this.#run();
  }

  /** What there is, waiting for something at most `waitMs`. Errors: `invalid_params` with ripgrep's own words. */
  async next(waitMs: number, signal: AbortSignal): Promise<Page> {
    if (this.#lines.length === 0 && this.#outcome === null && waitMs > 0) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          clearTimeout(timer);
          signal.removeEventListener('abort', done);
          this.#wakeTaker = null;
          resolve();
        };
        const timer = setTimeout(done, waitMs);
        signal.addEventListener('abort', done);
        this.#wakeTaker = done;
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

  /** Ends it wherever it is. */
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
          this.#take(line);
          while (this.#lines.length >= READY_LINES && !this.#isOver()) await this.#room();
        }
        if (this.#lines.length > 0) this.#wakeTaker?.();
      }
      const { code, signal, stderr } = await this.#ripgrep.exited;
      if (!this.#isOver()) {
        if (signal !== null) throw new HoldfastError('internal', 'The search was ended', { why: signal });
        // It also ends so where a file could not be read; then it has nothing to say.
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
      this.#wakeTaker?.();
    }
  }

  #isOver(): boolean {
    return this.#closed || this.#stopped !== null;
  }

  async #room(): Promise<void> {
    this.#wakeTaker?.();
    await new Promise<void>((resolve) => (this.#wakeReader = resolve));
    this.#wakeReader = null;
  }

  #take(line: Buffer): void {
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
    this.#lines.push(this.#view(text, message.type, number, bytes, submatches));
  }

  #view(
    path: string,
    kind: SearchLine['kind'],
    line: number,
    bytes: Buffer,
    submatches: readonly { readonly start: number; readonly end: number }[],
  ): SearchLine {
    const text = bytes.toString('utf8').replace(/\r?\n$/, '');
    const offsets = submatches.slice(0, MOST_RANGES).flatMap(({ start, end }) => [start, end]);
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
  return new HoldfastError('invalid_params', `There was no search in ${WORKSPACE}`, {
    why: why.length > 1000 ? `${why.slice(0, 1000)}…` : why,
    next: 'correct the pattern or the globs',
  });
}
