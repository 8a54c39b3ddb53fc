import { createHash } from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import { constants, createZstdCompress } from 'node:zlib';
import { BUNDLE_TYPE } from '../../protocol/bundles.ts';
import {
  contentOf,
  contentsOf,
  type EventEntry,
  parseEvent,
  withoutPromptText,
} from '../../protocol/events.ts';
import { sealEnvelope } from '../../protocol/envelope.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { parseHash } from '../../snapshot-format/objects.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog } from '../history/event-log.ts';
import type { HostKey } from '../manifests/host-key.ts';
import type { LineageStore } from '../snapshots/store/lineage-store.ts';
import { treePacks } from '../snapshots/tree-packs.ts';
import {
  BUNDLE_LIMITS,
  type BundleEvent,
  type BundleHead,
  BundleHeadSchema,
  type BundleSession,
  BundleSessionSchema,
  type BundleStatement,
  MEMBERS,
  rootsOf,
} from './bundle-format.ts';
import { jsonFault } from './bundle-json.ts';
import { TAR_END, tarHeader, tarPadding } from './tar.ts';

const CONTENT_PART_BYTES = 2 ** 20;
const COMPRESSION_LEVEL = 3;
const NEWLINE = Buffer.from('\n');

export interface BundleWriterOptions {
  readonly events: Pick<EventLog, 'read'>;
  readonly contents: Pick<Contents, 'read'>;
  readonly key: HostKey;
}

/** What a bundle is made of, beside the contents and objects that it names. */
export interface BundlePlan {
  readonly head: BundleHead;
  readonly session: BundleSession;
  /** The last event that belongs to it. */
  readonly lastSeq: number;
}

/** A plan that an import takes. */
export interface MeasuredPlan extends BundlePlan {
  /** JSON of head and session. */
  readonly headText: Buffer;
  readonly sessionText: Buffer;
  /** Of the history. */
  readonly bytes: number;
  /** That the history names, with their sizes. */
  readonly contents: ReadonlyMap<string, number>;
}

/** Writes bundles, a part at a time. What it reads must not be removed meanwhile. */
export class BundleWriter {
  readonly #options: BundleWriterOptions;

  constructor(options: BundleWriterOptions) {
    this.#options = options;
  }

  /** Errors: `not_supported` for whatever an import would refuse. */
  async measure(plan: BundlePlan, signal: AbortSignal): Promise<MeasuredPlan> {
    const [headText, sessionText] = [plan.head, plan.session].map((one) => Buffer.from(JSON.stringify(one)));
    if (headText === undefined || sessionText === undefined) throw new RangeError('nothing to write');
    const { sessionBytes, headBytes, sessionValues } = BUNDLE_LIMITS;
    if (sessionText.length > sessionBytes || jsonFault(sessionText, sessionValues) !== null)
      throw tooLarge('its review is too large');
    if (headText.length > headBytes || !BundleHeadSchema.safeParse(plan.head).success)
      throw new HoldfastError('internal', 'The session cannot be exported', { why: 'its head is not valid' });
    const checked = BundleSessionSchema.safeParse(plan.session);
    if (!checked.success) {
      const [first] = checked.error.issues;
      throw tooLarge(`a bundle cannot hold its ${first?.path.join('.') ?? 'facts'}: ${first?.message ?? ''}`);
    }
    const history = await this.#measure(plan.session.session.id, plan.lastSeq, new TimeSlice(signal));
    return { ...plan, headText, sessionText, ...history };
  }

  /**
   * The bytes of a bundle. The caller holds the lineage's lock until the end. Errors: `snapshot_damaged`, `home_damaged`,
   * `conflict` if the history was removed meanwhile.
   */
  write(plan: MeasuredPlan, store: LineageStore, signal: AbortSignal): AsyncIterable<Buffer> {
    const level = { [constants.ZSTD_c_compressionLevel]: COMPRESSION_LEVEL };
    const compressed = createZstdCompress({ params: level });
    // An error of the source destroys the result with it, and reading that throws it.
    pipeline(Readable.from(this.#archive(plan, store, signal)), compressed, () => undefined);
    return compressed;
  }

  async *#archive(plan: MeasuredPlan, store: LineageStore, signal: AbortSignal): AsyncGenerator<Buffer> {
    const digest = createHash('sha256');
    for await (const bytes of this.#members(plan, store, new TimeSlice(signal))) {
      digest.update(bytes);
      yield bytes;
    }
    const { madeAt, session } = plan.session;
    const statement: BundleStatement = {
      _type: 'https://in-toto.io/Statement/v1',
      subject: [{ name: 'bundle', digest: { sha256: digest.digest('hex') } }],
      predicateType: BUNDLE_TYPE,
      predicate: { home: plan.head.home, session: session.id, madeAt },
    };
    const envelope = sealEnvelope(Buffer.from(JSON.stringify(statement)), this.#options.key.privateKey);
    yield* member(MEMBERS.statement, Buffer.from(JSON.stringify(envelope)));
    yield TAR_END;
  }

  async *#members(
    { session, lastSeq, headText, sessionText, bytes: size, contents }: MeasuredPlan,
    store: LineageStore,
    slices: TimeSlice,
  ): AsyncGenerator<Buffer> {
    yield* member(MEMBERS.head, headText);
    yield* member(MEMBERS.session, sessionText);
    const { id } = session.session;

    yield tarHeader(MEMBERS.events, size);
    let left = size;
    for await (const lines of this.#lines(id, lastSeq, slices)) {
      left -= lines.length;
      yield lines;
    }
    if (left !== 0)
      throw new HoldfastError(
        'conflict',
        'The session was deleted or its history was cut while it was exported',
      );
    yield tarPadding(size);

    for (const [sha256, bytes] of [...contents].sort(([one], [other]) => (one < other ? -1 : 1))) {
      yield tarHeader(`contents/${sha256}`, bytes);
      for (let offset = 0; offset < bytes; offset += CONTENT_PART_BYTES) {
        yield this.#options.contents.read(id, sha256, offset, CONTENT_PART_BYTES).part;
        if (slices.isUsedUp) await slices.yieldToEventLoop();
      }
      yield tarPadding(bytes);
    }

    const roots = rootsOf(session).map(parseHash);
    let number = 0;
    for await (const { bytes, objects } of treePacks(store, roots, slices)) {
      yield* member(`packs/${number}-${objects}.pack`, bytes);
      number += 1;
    }
  }

  /** The bytes of the history, and the contents that it names, with their sizes. */
  async #measure(
    sessionId: string,
    lastSeq: number,
    slices: TimeSlice,
  ): Promise<{ bytes: number; contents: Map<string, number> }> {
    const contents = new Map<string, number>();
    let bytes = 0;
    let contentsBytes = 0;
    let promptsBytes = 0;
    let events = 0;
    for await (const line of this.#lines(sessionId, lastSeq, slices, (entry) => {
      // Not `lastSeq`: a cut leaves fewer events.
      events += 1;
      if (events > BUNDLE_LIMITS.events) throw tooLarge('its history has too many events');
      const main = contentOf(entry);
      if (
        main &&
        (entry.type === 'turn.queued' || entry.type === 'turn.edited' || entry.type === 'turn.ended')
      )
        promptsBytes += main.bytes;
      if (promptsBytes > BUNDLE_LIMITS.promptsBytes) throw tooLarge('its prompts and results are too large');
      for (const content of contentsOf(entry)) {
        if (contents.has(content.sha256)) continue;
        contents.set(content.sha256, content.bytes);
        contentsBytes += content.bytes;
        if (content.bytes > BUNDLE_LIMITS.contentBytes || contentsBytes > BUNDLE_LIMITS.contentsBytes)
          throw tooLarge('its outputs are too large');
      }
    })) {
      bytes += line.length;
      if (bytes > BUNDLE_LIMITS.eventsBytes) throw tooLarge('its history is too large');
    }
    if (contents.size > BUNDLE_LIMITS.contents) throw tooLarge('it has too many prompts and outputs');
    return { bytes, contents };
  }

  /** The history is append-only, so it gives the same lines each time. */
  async *#lines(
    sessionId: string,
    lastSeq: number,
    slices: TimeSlice,
    onEvent: (entry: EventEntry) => void = () => undefined,
  ): AsyncGenerator<Buffer> {
    for (let after = 0; after < lastSeq;) {
      const page = this.#options.events.read(sessionId, { after });
      const last = page.at(-1);
      if (last === undefined) return;
      const lines = page
        .filter(({ seq }) => seq <= lastSeq)
        .map(({ seq, at, type, data }) => {
          const parsed = parseEvent({ type, data });
          if (parsed === null || isOfEarlierVersion(parsed)) {
            throw new HoldfastError('not_supported', 'The session cannot be exported', {
              why: `event ${seq} of its history was written by another version of Holdfast`,
            });
          }
          onEvent(parsed);
          const kept = withoutPromptText(parsed.type, data);
          const event: BundleEvent = { seq, at: Date.parse(at), type: parsed.type, data: kept };
          const line = Buffer.from(JSON.stringify(event));
          if (jsonFault(line, BUNDLE_LIMITS.values) !== null)
            throw tooLarge(`event ${seq} of its history is too large`);
          return [line, NEWLINE];
        });
      yield Buffer.concat(lines.flat());
      after = last.seq;
      if (slices.isUsedUp) await slices.yieldToEventLoop();
    }
  }
}

/** Earlier versions stored prompts and outputs in events or in files of their own. */
function isOfEarlierVersion(entry: NonNullable<ReturnType<typeof parseEvent>>): boolean {
  if (entry.type === 'turn.queued') return entry.data.content === null;
  return entry.type === 'turn.output' && entry.data.content === null;
}

function member(name: string, bytes: Buffer): Buffer[] {
  return [tarHeader(name, bytes.length), bytes, tarPadding(bytes.length)];
}

function tooLarge(why: string): HoldfastError {
  return new HoldfastError('not_supported', 'The session cannot be exported', {
    why,
  });
}
