import { type Blame, BLAME_LIMITS, type BlameOrigin } from '../../../protocol/blame.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Params } from '../../../protocol/methods.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import type { ObjectReader } from '../../../snapshot-format/objects.ts';
import { isoTime } from '../../base/iso-time.ts';
import type { EventLog } from '../../history/event-log.ts';
import { summarizePrompt } from '../../history/prompt-summary.ts';
import { type LineChange, lineStarts } from '../../snapshots/patch/line-changes.ts';
import type { SessionRow } from '../../store/sessions.ts';
import type { Turns } from '../../store/turns.ts';
import type { ReviewTrees } from '../review-trees.ts';
import type { TextComparison } from '../../snapshots/patch/text-comparison.ts';
import { bytesOf, type StoredVersion, versionAt } from './file-versions.ts';
import { type Cause, causeBetween, type StoredState, UNKNOWN } from './intervals.ts';
import { LineOrigins, type OriginRange } from './line-origins.ts';
import { renamedFrom } from './renamed-from.ts';
import { type SessionStates, type SessionStatesOptions, statesOf } from './session-states.ts';

/** How much of a turn's input is read to find its prompt, which may be inside JSON. */
const MAX_INPUT_BYTES = 4096;
/** Compared versions, and answers, that are remembered. */
const MAX_REMEMBERED = { comparisons: 2000, changes: 200_000, answers: 16 } as const;

/** A file of a workspace as it is now. */
export interface LiveFile {
  readonly bytes: Buffer;
  readonly version: string;
  /** Bytes of the file, which may be more than were read. */
  readonly size: number;
}

export interface BlamesOptions extends Omit<SessionStatesOptions, 'turns'> {
  readonly turns: Pick<Turns, 'listBySession' | 'readInputStart'>;
  readonly events: Pick<EventLog, 'head' | 'start'>;
  readonly trees: Pick<ReviewTrees, 'use'>;
  readonly texts: Pick<TextComparison, 'changes'>;
  /** Reads up to `BLAME_LIMITS.bytes`. Errors: the `file_*` codes. */
  readonly readLive: (sessionId: string, path: string, signal?: AbortSignal) => Promise<LiveFile>;
}

/** Where a line comes from: what can have changed it between two states. */
interface Origin {
  readonly cause: Cause;
  readonly from: StoredState | null;
  readonly to: StoredState | null;
}

interface Answer {
  readonly lines: number;
  readonly ranges: readonly OriginRange<Origin>[];
  readonly startedAt: ReadonlyMap<string, number>;
}

/** Finds what changed each line of a file last, from the stored states of the workspace. */
export class Blames {
  readonly #options: BlamesOptions;
  /** By the ids of both contents. */
  readonly #comparisons = new Map<string, readonly LineChange[]>();
  #rememberedChanges = 0;
  readonly #answers = new Map<string, Answer>();

  constructor(options: BlamesOptions) {
    this.#options = options;
  }

  /** Errors: the `file_*` codes, `not_supported` for what is no text, `conflict` for another version. */
  async blame(
    session: SessionRow,
    { path, start = 0, end = Infinity, ifVersion }: Omit<Params<'review/blame'>, 'session'>,
    signal?: AbortSignal,
  ): Promise<Blame> {
    const live = await this.#options.readLive(session.id, path, signal);
    if (ifVersion !== undefined && ifVersion !== live.version) {
      throw new HoldfastError('conflict', `${path} has another version`, {
        why: 'it has changed meanwhile',
        next: 'ask again',
        details: { version: live.version },
      });
    }
    const lines = countLines(path, live);
    const states = statesOf(session, this.#options);
    const { seq } = this.#options.events.head(session.id);
    const known = [session.id, path, live.version, seq, states.states.length, states.states.at(-1)?.root];
    const key = JSON.stringify(known);
    const answer = this.#answers.get(key) ?? (await this.#follow(session, path, live, states, signal));
    this.#answers.delete(key);
    this.#answers.set(key, answer);
    dropOldest(this.#answers, MAX_REMEMBERED.answers);
    return this.#page(answer, { path, version: live.version, lines, start, end });
  }

  async #follow(
    session: SessionRow,
    path: string,
    live: LiveFile,
    { states, turns, startedAt }: SessionStates,
    signal?: AbortSignal,
  ): Promise<Answer> {
    const knownFrom = this.#options.events.start(session.id).seq;
    const lines = lineStarts(live.bytes).length - 1;
    const origins = new LineOrigins<Origin>(lines);
    const slices = new TimeSlice(signal);
    const isThere = (other: string): Promise<boolean> => this.#isThere(session.id, other, signal);
    await this.#options.trees.use(session.lineage, async (reader) => {
      /** The text that was reached, and the first state that has it; null: now. */
      let text: Text = {
        key: `live ${live.version}`,
        bytes: () => Promise.resolve(live.bytes),
        size: live.size,
      };
      let to: StoredState | null = null;
      let versions = 0;
      let compared = 0;
      /** What the file was called then. */
      let name = path;
      let renames = 0;
      for (const from of states.toReversed()) {
        if (origins.open === 0) return;
        if (slices.isUsedUp) await slices.yieldToEventLoop();
        let version = await versionAt(reader, from.root, name);
        if (version.is === 'absent' && renames < BLAME_LIMITS.renames) {
          const trees = { from: from.root, to: to?.root ?? null, path: name };
          const earlier = await renamedFrom(reader, trees, { bytes: live.bytes, isThere }, slices);
          if (earlier !== null) version = await versionAt(reader, from.root, earlier);
          name = earlier ?? name;
          renames += 1;
        }
        if (version.is === 'unknown') continue;
        const origin = { cause: causeBetween(from, to, turns, knownFrom), from, to };
        if (version.is === 'absent') {
          origins.finish(origin);
          return;
        }
        const older = textOf(reader, version);
        if (versions === BLAME_LIMITS.versions || compared + older.size > BLAME_LIMITS.comparedBytes) {
          origins.finish({ cause: UNKNOWN, from: null, to });
          return;
        }
        const changes = await this.#changes(older, text);
        if (changes === null) {
          // It was read nevertheless.
          compared += older.size;
          continue;
        }
        if (changes.length > 0) {
          versions += 1;
          compared += older.size;
          origins.stepBack(changes, origin);
        }
        text = older;
        to = from;
      }
      origins.finish({ cause: causeBetween(null, to, turns), from: null, to });
    });
    return { lines, ranges: origins.ranges(), startedAt };
  }

  /** Whether the workspace has a file there; what cannot be read may be one. */
  async #isThere(sessionId: string, path: string, signal?: AbortSignal): Promise<boolean> {
    try {
      await this.#options.readLive(sessionId, path, signal);
      return true;
    } catch (error) {
      if (!(error instanceof HoldfastError) || !error.code.startsWith('file_')) throw error;
      return error.code !== 'file_not_found' && error.code !== 'file_not_a_directory';
    }
  }

  /** Null if one of the texts cannot be read, or the older one has too many lines: other states may know more. */
  async #changes(older: Text, newer: Text): Promise<readonly LineChange[] | null> {
    if (older.key === newer.key) return [];
    const id = `${older.key} ${newer.key}`;
    const known = this.#comparisons.get(id);
    if (known !== undefined) return known;
    const before = await older.bytes();
    const after = await newer.bytes();
    if (before === null || after === null) return null;
    if (hasTooManyLines(before)) return null;
    const changes = before.equals(after) ? [] : await this.#compare(id, before, after);
    this.#remember(id, changes);
    return changes;
  }

  async #compare(id: string, before: Buffer, after: Buffer): Promise<readonly LineChange[]> {
    if (!before.includes(0)) return await this.#options.texts.changes(`blame ${id}`, before, after);
    // What was no text had none of these lines.
    const afterEnd = lineStarts(after).length - 1;
    return [{ beforeStart: 0, beforeEnd: 0, afterStart: 0, afterEnd }];
  }

  #remember(id: string, changes: readonly LineChange[]): void {
    this.#comparisons.set(id, changes);
    this.#rememberedChanges += changes.length;
    for (const [oldest, { length }] of this.#comparisons) {
      const { comparisons, changes: most } = MAX_REMEMBERED;
      if (this.#comparisons.size <= comparisons && this.#rememberedChanges <= most) break;
      this.#comparisons.delete(oldest);
      this.#rememberedChanges -= length;
    }
  }

  #page(
    { ranges, startedAt }: Answer,
    asked: { path: string; version: string; lines: number; start: number; end: number },
  ): Blame {
    const { path, version, lines, start, end } = asked;
    const indexes = new Map<Origin, number>();
    const origins: BlameOrigin[] = [];
    const found: Blame['ranges'] = [];
    let nextLine: number | null = null;
    for (const range of ranges) {
      if (range.end <= start || range.start >= end) continue;
      if (found.length === BLAME_LIMITS.ranges) {
        nextLine = range.start;
        break;
      }
      let origin = indexes.get(range.origin);
      if (origin === undefined) {
        origin = origins.push(this.#view(range.origin, startedAt)) - 1;
        indexes.set(range.origin, origin);
      }
      found.push({ start: Math.max(range.start, start), end: Math.min(range.end, end), origin });
    }
    return { path, version, lines, origins, ranges: found, nextLine };
  }

  #view({ cause, from, to }: Origin, startedAt: ReadonlyMap<string, number>): BlameOrigin {
    const { kind, isExact, turns } = cause;
    const state = (one: StoredState | null) =>
      one === null ? null : { snapshotId: one.snapshotId, at: isoTime(one.at) };
    return {
      kind,
      isExact,
      turns: turns.slice(0, BLAME_LIMITS.turns).map((id) => {
        const input = this.#options.turns.readInputStart(id, MAX_INPUT_BYTES);
        return {
          id,
          prompt: input === null ? '' : summarizePrompt(input),
          at: isoTime(startedAt.get(id) ?? from?.at ?? 0),
        };
      }),
      turnCount: turns.length,
      from: state(from),
      to: state(to),
    };
  }
}

/** A version of a file. */
interface Text {
  /** The same for the same content. */
  readonly key: string;
  readonly size: number;
  readonly bytes: () => Promise<Buffer | null>;
}

/** Reads its bytes once, when they are needed. */
function textOf(reader: ObjectReader, { key, entry }: StoredVersion): Text {
  let reading: Promise<Buffer | null> | null = null;
  return { key, size: entry.size, bytes: () => (reading ??= bytesOf(reader, entry)) };
}

function countLines(path: string, { bytes, size }: LiveFile): number {
  const tooLarge = (why: string): HoldfastError =>
    new HoldfastError('file_too_large', `The lines of ${path} are not followed back`, { why });
  if (size > BLAME_LIMITS.bytes)
    throw tooLarge(`it has ${size} bytes, and the limit is ${BLAME_LIMITS.bytes}`);
  if (bytes.includes(0)) {
    throw new HoldfastError('not_supported', `${path} is not text`, { why: 'it has zero bytes' });
  }
  const lines = lineStarts(bytes).length - 1;
  if (lines > BLAME_LIMITS.lines)
    throw tooLarge(`it has ${lines} lines, and the limit is ${BLAME_LIMITS.lines}`);
  return lines;
}

/** Counts no further than the limit. What is no text is not compared, and may have any number. */
function hasTooManyLines(bytes: Buffer): boolean {
  if (bytes.includes(0)) return false;
  let at = -1;
  for (let lines = 0; lines <= BLAME_LIMITS.lines; lines += 1) {
    at = bytes.indexOf(0x0a, at + 1);
    if (at === -1) return false;
  }
  return true;
}

function dropOldest<K>(map: Map<K, unknown>, most: number): void {
  for (const key of map.keys()) {
    if (map.size <= most) break;
    map.delete(key);
  }
}
