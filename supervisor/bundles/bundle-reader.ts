import { createHash, type Hash, type KeyObject } from 'node:crypto';
import { keyIdOf, openEnvelope, readPublicKey } from '../../protocol/envelope.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { contentsOf, parseEvent } from '../../protocol/events.ts';
import type { Checkpoint } from '../../protocol/history.ts';
import { PACK } from '../../snapshot-format/pack-layout.ts';
import type { IncomingPacks } from '../snapshots/store/incoming-packs.ts';
import {
  BUNDLE_LIMITS,
  type BundleEvent,
  BundleEventSchema,
  type BundleHead,
  BundleHeadSchema,
  type BundleSession,
  BundleSessionSchema,
  BundleStatementSchema,
  MEMBERS,
  refusedBundle,
} from './bundle-format.ts';
import { verifiedCheckpoint } from './bundle-checkpoint.ts';
import { parseBundleJson } from './bundle-json.ts';
import { tarHeader, type TarListener, tarPadding } from './tar.ts';

/** A line of the history: an event has at most half a MiB of data. */
const LINE_BYTES = 2 ** 20;
/** Members by their order. */
const ORDER = { head: 0, session: 1, events: 2, content: 3, pack: 4, statement: 5 } as const;

/** Where the bytes of contents are put until they have rows: one file, in which each has its place. */
export interface ContentFile {
  append(bytes: Buffer): void;
  /** Throws `no_space` if so many bytes would not fit. */
  requireSpace(bytes: number): Promise<void>;
}

export interface ReadContent {
  readonly start: number;
  readonly bytes: number;
}

/** A bundle that is complete and signed by its key. */
export interface ReadBundle {
  /** That made it. */
  readonly home: string;
  readonly session: BundleSession;
  readonly keyId: string;
  /** In order of their seq. Each is valid by itself. */
  readonly events: readonly BundleEvent[];
  /** What the history begins with if it was cut. */
  readonly checkpoint: Checkpoint | null;
  /** By their hash. */
  readonly contents: ReadonlyMap<string, ReadContent>;
  readonly packBytes: number;
}

type Kind = keyof typeof ORDER;

interface OpenMember {
  readonly kind: Kind;
  readonly name: string;
  readonly size: number;
  readonly parts: Buffer[];
  readonly hash: Hash | null;
  /** Bytes read so far. */
  at: number;
}

/**
 * Reads the members of a bundle, which anybody may have written: their order, names, numbers, sizes and contents are checked as they
 * arrive. Nothing of it counts before `finish`. Errors: `snapshot_damaged` for a bundle that is not valid, `confirmation_required` for
 * the key of another home, those of `IncomingPacks`.
 */
export class BundleReader implements TarListener {
  readonly #packs: IncomingPacks;
  readonly #file: ContentFile;
  /** The id of the only key that is accepted. */
  readonly #expectedKey: string;
  readonly #digest = createHash('sha256');
  #member: OpenMember | null = null;
  #last: Kind | null = null;
  #head: BundleHead | null = null;
  #session: BundleSession | null = null;
  #publicKey: KeyObject | null = null;
  readonly #events: BundleEvent[] = [];
  #line: Buffer[] = [];
  #lineBytes = 0;
  readonly #named = new Map<string, number>();
  readonly #contents = new Map<string, ReadContent>();
  #lastContent = '';
  #contentsBytes = 0;
  #packCount = 0;
  #packBytes = 0;
  #isSigned = false;

  constructor(packs: IncomingPacks, file: ContentFile, expectedKey: string) {
    this.#packs = packs;
    this.#file = file;
    this.#expectedKey = expectedKey;
  }

  async onMember(name: string, size: number): Promise<void> {
    const kind = kindOf(name);
    const place = this.#last === null ? -1 : ORDER[this.#last];
    const isRepeated = kind === this.#last && (kind === 'content' || kind === 'pack');
    // The first three are always there.
    const isNext = ORDER[kind] === place + 1 || (ORDER[kind] > place && place >= ORDER.events);
    if (!isNext && !isRepeated) throw refusedBundle(`${name} is not where it belongs`);
    this.#last = kind;
    this.#requireSize(kind, name, size);
    if (kind !== 'statement') this.#digest.update(tarHeader(name, size));
    if (kind === 'content') await this.#file.requireSpace(size);
    this.#member = {
      ...{ kind, name, size, parts: [], at: 0 },
      hash: kind === 'content' ? createHash('sha256') : null,
    };
  }

  async onBytes(bytes: Buffer): Promise<void> {
    const member = this.#member;
    if (member === null) throw refusedBundle('it has bytes outside its parts');
    if (member.kind !== 'statement') this.#digest.update(bytes);
    switch (member.kind) {
      case 'head':
      case 'session':
      case 'statement':
        member.parts.push(Buffer.from(bytes));
        break;
      case 'events':
        this.#readLines(bytes);
        break;
      case 'content':
        member.hash?.update(bytes);
        this.#file.append(bytes);
        break;
      case 'pack':
        await this.#packs.put(this.#packCount, member.at, bytes);
        break;
    }
    member.at += bytes.length;
  }

  async onMemberEnd(): Promise<void> {
    const member = this.#member;
    if (member === null) return;
    this.#member = null;
    if (member.kind !== 'statement') this.#digest.update(tarPadding(member.size));
    switch (member.kind) {
      case 'head':
        this.#readHead(parseBundleJson(Buffer.concat(member.parts), BundleHeadSchema, BUNDLE_LIMITS.values));
        break;
      case 'session': {
        const text = Buffer.concat(member.parts);
        this.#session = parseBundleJson(text, BundleSessionSchema, BUNDLE_LIMITS.sessionValues);
        break;
      }
      case 'events':
        if (this.#lineBytes > 0) throw refusedBundle('its history ends in the middle of a line');
        break;
      case 'content':
        this.#readContent(member);
        break;
      case 'pack': {
        const objects = Number(MEMBERS.pack.exec(member.name)?.groups?.['objects']);
        await this.#packs.seal(this.#packCount, member.size, objects);
        this.#packCount += 1;
        this.#packBytes += member.size;
        break;
      }
      case 'statement':
        this.#readStatement(Buffer.concat(member.parts).toString('utf8'));
        break;
    }
  }

  /** Errors: `snapshot_damaged` if a part is missing. */
  finish(): ReadBundle {
    const [head, session, publicKey] = [this.#head, this.#session, this.#publicKey];
    if (head === null || session === null || publicKey === null || !this.#isSigned)
      throw refusedBundle('it has no signature: it was cut off');
    const { checkpoint: text } = session;
    const checkpoint =
      text === undefined
        ? null
        : verifiedCheckpoint(text, {
            ...{ publicKey, home: head.home, session: session.session.id, events: this.#events },
          });
    for (const sha256 of this.#named.keys())
      if (!this.#contents.has(sha256))
        throw refusedBundle('its history names a content that it does not hold');
    return {
      home: head.home,
      session,
      keyId: this.#expectedKey,
      events: this.#events,
      checkpoint,
      contents: this.#contents,
      packBytes: this.#packBytes,
    };
  }

  #requireSize(kind: Kind, name: string, size: number): void {
    const largest = {
      head: BUNDLE_LIMITS.headBytes,
      session: BUNDLE_LIMITS.sessionBytes,
      events: BUNDLE_LIMITS.eventsBytes,
      content: BUNDLE_LIMITS.contentBytes,
      pack: PACK.maxBytes,
      statement: BUNDLE_LIMITS.statementBytes,
    }[kind];
    if (size > largest) throw refusedBundle(`${name} is too large`);
    if (kind === 'content') {
      this.#contentsBytes += size;
      const sha256 = name.slice('contents/'.length);
      if (sha256 <= this.#lastContent) throw refusedBundle(`${name} is not where it belongs`);
      this.#lastContent = sha256;
      if (this.#named.get(sha256) !== size) throw refusedBundle(`${name} is not what its history names`);
      if (this.#contents.size >= BUNDLE_LIMITS.contents || this.#contentsBytes > BUNDLE_LIMITS.contentsBytes)
        throw refusedBundle('it holds too many prompts and outputs');
    }
    if (kind === 'pack') {
      const number = Number(MEMBERS.pack.exec(name)?.groups?.['number']);
      if (number !== this.#packCount) throw refusedBundle(`${name} is not where it belongs`);
      if (number >= BUNDLE_LIMITS.packs) throw refusedBundle('it has too many packs');
    }
  }

  #readHead(head: BundleHead): void {
    const publicKey = readPublicKey(head.publicKey);
    if (publicKey === null) throw refusedBundle('its key is not a public Ed25519 key');
    const keyId = keyIdOf(publicKey);
    if (keyId !== this.#expectedKey) {
      throw new HoldfastError('confirmation_required', 'The session was not imported', {
        why: `the key ${keyId} signed it, which is not the one that was expected`,
        next: `if you trust the home ${head.home}, whose key \`holdfast manifest key\` shows there, add --key ${keyId}`,
        details: { keyId, home: head.home },
      });
    }
    this.#head = head;
    this.#publicKey = publicKey;
  }

  #readLines(bytes: Buffer): void {
    for (let from = 0; from < bytes.length;) {
      const end = bytes.indexOf(10, from);
      const part = bytes.subarray(from, end === -1 ? bytes.length : end);
      this.#lineBytes += part.length;
      if (this.#lineBytes > LINE_BYTES) throw refusedBundle('an event of its history is too large');
      this.#line.push(Buffer.from(part));
      if (end === -1) return;
      this.#readEvent(Buffer.concat(this.#line));
      this.#line = [];
      this.#lineBytes = 0;
      from = end + 1;
    }
  }

  #readEvent(line: Buffer): void {
    if (this.#events.length >= BUNDLE_LIMITS.events) throw refusedBundle('its history has too many events');
    const event = parseBundleJson(line, BundleEventSchema, BUNDLE_LIMITS.values);
    if (event.seq <= (this.#events.at(-1)?.seq ?? 0)) throw refusedBundle('its history is not in order');
    let entry: ReturnType<typeof parseEvent>;
    try {
      entry = parseEvent(event);
    } catch (cause) {
      throw refusedBundle(`event ${event.seq} of its history is not valid`, cause);
    }
    if (entry === null) throw refusedBundle(`event ${event.seq} is of a newer version of Holdfast`);
    for (const content of contentsOf(entry)) {
      const bytes = this.#named.get(content.sha256) ?? content.bytes;
      if (bytes !== content.bytes) throw refusedBundle('its history names a content with two sizes');
      this.#named.set(content.sha256, bytes);
    }
    // Without members that the schema does not have.
    this.#events.push({ ...event, type: entry.type, data: entry.data });
  }

  #readContent({ name, size, hash }: OpenMember): void {
    const sha256 = name.slice('contents/'.length);
    if (hash?.digest('hex') !== sha256) throw refusedBundle(`${name} was changed`);
    this.#contents.set(sha256, { start: this.#contentsBytes - size, bytes: size });
  }

  #readStatement(text: string): void {
    if (this.#head === null || this.#session === null || this.#publicKey === null)
      throw refusedBundle('it says nothing about itself');
    const opened = openEnvelope(text, this.#publicKey);
    if (!opened.valid) throw refusedBundle(opened.why);
    const { subject, predicate } = parseBundleJson(
      opened.payload,
      BundleStatementSchema,
      BUNDLE_LIMITS.values,
    );
    const { madeAt, session } = this.#session;
    const isSame =
      subject[0]?.digest.sha256 === this.#digest.digest('hex') &&
      predicate.home === this.#head.home &&
      predicate.session === session.id &&
      predicate.madeAt === madeAt;
    if (!isSame) throw refusedBundle('its signature does not match: it was changed after it was signed');
    this.#isSigned = true;
  }
}

function kindOf(name: string): Kind {
  if (name === MEMBERS.head) return 'head';
  if (name === MEMBERS.session) return 'session';
  if (name === MEMBERS.events) return 'events';
  if (name === MEMBERS.statement) return 'statement';
  if (MEMBERS.content.test(name)) return 'content';
  if (MEMBERS.pack.test(name)) return 'pack';
  throw refusedBundle('it has a part that no bundle has');
}
