import type { SessionEvent } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { contentsOf, type EventEntry, parseEvent } from '../../protocol/events.ts';
import { KeptEvents } from './kept-events.ts';

export interface CutRequestFacts {
  /** The last event that an earlier cut removed, and the last one that there is. */
  readonly start: number;
  readonly head: number;
  /** ms since 1970; null if `keep` says it. */
  readonly before: number | null;
  readonly keep: number | null;
  readonly isSnapshotKept: (id: string) => boolean;
  /** The prompt of a turn of an earlier version, whose event does not name it. */
  readonly promptOf: (turnId: string) => string | null;
}

/** A turn, from its first event to its last; `to` is Infinity while it waits or runs. */
interface Span {
  readonly id: string;
  readonly from: number;
  to: number;
  isOver: boolean;
}

/** Turns that overlap, because some waited while others ran. `turn`: the one that ends last. */
type Block = Pick<Span, 'from' | 'to'> & { readonly turn: Span };

interface CutPlanFacts {
  readonly asked: number;
  readonly start: number;
  readonly scannedTo: number;
  readonly kept: KeptEvents;
  /** Of the events up to `asked`. */
  readonly seqs: readonly number[];
  /** Those of them that only say that there was a cut. */
  readonly cuts: readonly number[];
  /** The last event that names a content, for those that an event up to `asked` names. */
  readonly contents: Map<string, number>;
  readonly spans: readonly Span[];
}

/**
 * Which events a cut removes: up to `seq`, except `kept`. A turn is removed as a whole or not at all, and not while it
 * waits or runs: its queue, its questions and its output are needed. The newest event always stays.
 */
export async function planCut(
  events: AsyncIterable<SessionEvent>,
  { start, head, before, keep, isSnapshotKept, promptOf }: CutRequestFacts,
): Promise<CutPlan> {
  const most = Math.min(head - (keep ?? 1), head - 1);
  const kept = new KeptEvents(isSnapshotKept);
  const spans = new Map<string, Span>();
  const contents = new Map<string, number>();
  const seqs: number[] = [];
  const cuts: number[] = [];
  let asked = start;
  let isBefore = true;
  let scannedTo = start;
  for await (const event of events) {
    const { seq } = event;
    scannedTo = Math.max(scannedTo, seq);
    // Clocks are set back: the first event that is not older ends it. What an earlier cut has left is older in any case.
    isBefore &&= seq <= start || (seq <= most && (before === null || Date.parse(event.at) < before));
    const entry = parsed(event);
    if (isBefore) {
      asked = Math.max(asked, seq);
      if (entry !== null) kept.add(seq, entry);
      seqs.push(seq);
      if (event.type === 'history.cut') cuts.push(seq);
    }
    if (entry === null) continue;
    for (const sha256 of namedBy(entry, promptOf))
      if (isBefore || contents.has(sha256)) contents.set(sha256, seq);
    noteTurn(spans, event, entry.type);
  }
  return new CutPlan({ asked, start, scannedTo, kept, seqs, cuts, contents, spans: [...spans.values()] });
}

export class CutPlan {
  /** The last event that is removed; `start` if there is none. */
  readonly seq: number;
  /** Events up to it that stay. */
  readonly kept: readonly number[];
  /** How many events are removed; 0 if the only ones say that there was a cut. */
  readonly events: number;
  /** Why `seq` is less than what was asked for. */
  readonly limitedBy: string | null;
  readonly #facts: CutPlanFacts;
  readonly #blocks: readonly Block[];
  readonly #keptContents: ReadonlySet<string>;
  #scannedTo: number;

  constructor(facts: CutPlanFacts) {
    const { asked, start, kept, seqs, cuts, scannedTo, spans } = facts;
    this.#facts = facts;
    this.#scannedTo = scannedTo;
    this.#blocks = blocksOf(spans);
    this.seq = Math.max(start, this.#boundaryBelow(asked));
    this.kept = kept.upTo(this.seq);
    this.#keptContents = kept.contentsUpTo(this.seq);
    const upTo = (all: readonly number[]): number => all.filter((seq) => seq <= this.seq).length;
    const events = upTo(seqs) - this.kept.length;
    this.events = this.seq > start && events > upTo(cuts) ? events : 0;
    const block = this.seq < asked ? this.#blockAt(asked) : undefined;
    this.limitedBy =
      block === undefined
        ? null
        : `turn ${block.turn.id} ${block.turn.isOver ? 'ends after that' : 'has not ended'}`;
  }

  /** The last event that this plan knows. */
  get scannedTo(): number {
    return this.#scannedTo;
  }

  /** Events that were appended after the plan was made. They may name a content again. */
  seeNewer(events: Iterable<SessionEvent>): void {
    const { contents } = this.#facts;
    for (const event of events) {
      this.#scannedTo = event.seq;
      const entry = parseEvent(event);
      for (const { sha256 } of entry === null ? [] : contentsOf(entry))
        if (contents.has(sha256)) contents.set(sha256, event.seq);
    }
  }

  /** Contents that an event after `from` was the last to name, up to `seq`, and that nothing names which stays. */
  contentsBetween(from: number, seq: number): string[] {
    return [...this.#facts.contents].flatMap(([id, last]) =>
      last > from && last <= seq && !this.#keptContents.has(id) ? [id] : [],
    );
  }

  /** The turns that ended after `from`, up to `seq`. */
  turnsBetween(from: number, seq: number): string[] {
    return this.#facts.spans.filter(({ to }) => to > from && to <= seq).map(({ id }) => id);
  }

  /** The ends of the steps in which the plan is carried out, about `events` apart, each between two turns. */
  *steps(events: number): Generator<number> {
    for (let from = this.#facts.start; from < this.seq;) {
      const wanted = Math.min(from + events, this.seq);
      const below = this.#boundaryBelow(wanted);
      // Turns with more events are removed together.
      from = below > from ? below : Math.min(this.#blockAt(wanted)?.to ?? this.seq, this.seq);
      yield from;
    }
  }

  /** The last event up to `seq` behind which no turn goes on. */
  #boundaryBelow(seq: number): number {
    const block = this.#blockAt(seq);
    return block === undefined ? seq : block.from - 1;
  }

  /** The turns that begin up to `seq` and go on behind it. */
  #blockAt(seq: number): Block | undefined {
    return this.#blocks.find(({ from, to }) => from <= seq && to > seq);
  }
}

/** Errors: `home_damaged` for an event that nobody of ours wrote. */
function parsed(event: SessionEvent): EventEntry | null {
  try {
    return parseEvent(event);
  } catch (cause) {
    throw new HoldfastError('home_damaged', 'The history was not cut', {
      why: `event ${event.seq} was changed`,
      next: 'see `holdfast session verify SESSION`',
      cause,
    });
  }
}

function namedBy(entry: EventEntry, promptOf: CutRequestFacts['promptOf']): string[] {
  const isOld = entry.type === 'turn.queued' && entry.data.content === null;
  const prompt = isOld ? promptOf(entry.data.turnId) : null;
  return [...contentsOf(entry).map(({ sha256 }) => sha256), ...(prompt === null ? [] : [prompt])];
}

function noteTurn(spans: Map<string, Span>, { seq, data }: SessionEvent, type: string): void {
  const id = data['turnId'];
  if (typeof id !== 'string' || !type.startsWith('turn.')) return;
  const span = spans.get(id) ?? { id, from: seq, to: Infinity, isOver: false };
  spans.set(id, span);
  span.isOver ||= type === 'turn.ended';
  if (span.isOver) span.to = seq;
}

/** `spans` in the order of their beginnings. */
function blocksOf(spans: readonly Span[]): Block[] {
  const blocks: { from: number; to: number; turn: Span }[] = [];
  for (const turn of spans) {
    const last = blocks.at(-1);
    if (last === undefined || turn.from > last.to) blocks.push({ from: turn.from, to: turn.to, turn });
    else if (turn.to > last.to) {
      last.to = turn.to;
      last.turn = turn;
    }
  }
  return blocks;
}
