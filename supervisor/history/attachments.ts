import { hash } from 'node:crypto';
import { ATTACHMENT_LIMITS, attachmentName } from '../../protocol/attachment-names.ts';
import type { Attachment, AttachmentRef } from '../../protocol/attachments.ts';
import type { Content } from '../../protocol/contents.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { imageFacts } from '../../protocol/image-type.ts';
import { parsePath } from '../../protocol/paths.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Log } from '../base/log.ts';
import type { AttachmentUploads } from '../store/attachment-uploads.ts';
import { mediaTypeOf } from '../store/contents.ts';
import type { Database } from '../store/database.ts';
import type { Contents } from './contents.ts';

const DAY_MS = 86_400_000;
/** As long as a draft in an editor may keep what it has uploaded. */
const KEPT_UNUSED_MS = 7 * DAY_MS;
/** Of one session. */
const MOST_WAITING = { files: 200, bytes: 256 * 2 ** 20 } as const;
/** Uploads under way in the whole host. They are in memory. */
const MOST_OPEN = { uploads: 16, bytes: 64 * 2 ** 20 } as const;
/** An upload of which nothing comes for this long makes room for another one. */
const IDLE_MS = 60_000;
/** Results that a repeated last part gets again. */
const MOST_RESULTS = 64;
/** Enough for the header of every picture. */
const HEADER_BYTES = 2 ** 20;

export interface AttachmentsOptions {
  readonly database: Database;
  readonly uploads: AttachmentUploads;
  readonly contents: Pick<Contents, 'append' | 'find' | 'read' | 'remove'>;
  /** ms since 1970. */
  readonly now: () => number;
  readonly log: Log;
}

export interface UploadPart {
  readonly upload: string;
  readonly offset: number;
  readonly total: number;
  readonly bytes: Buffer;
}

export interface UploadProgress {
  readonly content: Content | null;
  readonly kind: 'image' | 'file' | null;
}

interface OpenUpload {
  readonly total: number;
  readonly parts: Buffer[];
  received: number;
  touchedAt: number;
}

const UNFINISHED: UploadProgress = { content: null, kind: null };

/**
 * Files that prompts bring along. An upload is in memory until it is complete, and then a content of its session: whoever dies in
 * between leaves nothing. A prompt names contents, and these stay as long as the session's history.
 */
export class Attachments {
  readonly #options: AttachmentsOptions;
  readonly #open = new Map<string, OpenUpload>();
  readonly #results = new Map<string, UploadProgress>();

  constructor(options: AttachmentsOptions) {
    this.#options = options;
  }

  /** Takes a part. Parts come in order, and one that is repeated changes nothing. */
  receive(sessionId: string, { upload, offset, total, bytes }: UploadPart): UploadProgress {
    requireSize(total);
    const key = `${sessionId} ${upload}`;
    const result = this.#results.get(key);
    if (result !== undefined && result.content?.bytes === total) return result;
    const open = this.#openOf(key, offset, total);
    const known = open.received - offset;
    if (known < 0 || open.total !== total || offset + bytes.length > total) {
      this.#open.delete(key);
      throw new HoldfastError('invalid_params', 'The upload has a gap', {
        why: `${open.received} of ${open.total} bytes have come, and the next ones are for ${offset} of ${total}`,
        next: 'begin it again',
      });
    }
    if (known < bytes.length) {
      // The buffer of a message is the connection's.
      open.parts.push(Buffer.from(bytes.subarray(known)));
      open.received += bytes.length - known;
    }
    open.touchedAt = performance.now();
    // Failpoints are not awaited here, as all of this is synchronous; a kill happens inside the call.
    void failpoint('attachment.after-part');
    if (open.received < total) return UNFINISHED;
    this.#open.delete(key);
    const stored = this.#store(sessionId, Buffer.concat(open.parts));
    this.#results.set(key, stored);
    const [oldest] = this.#results.keys();
    if (this.#results.size > MOST_RESULTS && oldest !== undefined) this.#results.delete(oldest);
    return stored;
  }

  /**
   * What a prompt brings along, with a different name for each. Call `markNamed` in the transaction of the event. Errors: `not_found`
   * for a content that the session does not have (any more), `invalid_params` and `file_not_found` for a path outside of /workspace,
   * `file_too_large`.
   */
  resolve(sessionId: string, refs: readonly AttachmentRef[]): Attachment[] {
    const taken = new Set<string>();
    let bytes = 0;
    const attachments = refs.map((ref): Attachment => {
      if ('path' in ref) {
        parsePath(ref.path);
        return { kind: 'link', path: ref.path };
      }
      const { kind, content } = this.#describe(sessionId, ref.content, ref.name);
      bytes += content.bytes;
      const name = unusedName(attachmentName(ref.name), taken);
      taken.add(name.toLowerCase());
      return { kind, name, content };
    });
    if (bytes > ATTACHMENT_LIMITS.promptBytes) {
      throw new HoldfastError('file_too_large', 'The attachments are too large', {
        why: `together they have ${bytes} bytes, and the maximum is ${ATTACHMENT_LIMITS.promptBytes}`,
        next: 'copy large files into the workspace, and name them in the prompt',
      });
    }
    return attachments;
  }

  markNamed(sessionId: string, attachments: readonly Attachment[]): void {
    for (const one of attachments)
      if (one.kind !== 'link') this.#options.uploads.remove(sessionId, one.content.sha256);
  }

  /**
   * Removes uploads of over a week ago that no prompt has named. Returns how many. One that cannot be removed stays until the next time:
   * neither the supervisor nor other uploads wait for it.
   */
  expire(): number {
    const { uploads, now } = this.#options;
    const old = uploads.olderThan(now() - KEPT_UNUSED_MS);
    return old.filter(({ sessionId, sha256 }) => this.#remove(sessionId, sha256)).length;
  }

  #remove(sessionId: string, sha256: string): boolean {
    const { database, uploads, contents, log } = this.#options;
    try {
      database.transaction(() => {
        contents.remove(sessionId, sha256);
        uploads.remove(sessionId, sha256);
      });
      return true;
    } catch (error) {
      log.warn('an upload that no prompt named could not be removed', { session: sessionId, sha256, error });
      return false;
    }
  }

  #openOf(key: string, offset: number, total: number): OpenUpload {
    const open = this.#open.get(key);
    if (open !== undefined && offset > 0) return open;
    if (offset > 0) {
      throw new HoldfastError('not_found', 'The first parts of the upload are gone', {
        why: 'the supervisor was restarted, or nothing came for a minute',
        next: 'begin it again',
      });
    }
    this.#open.delete(key);
    this.#results.delete(key);
    this.#requirePlace(total);
    const begun = { total, parts: [], received: 0, touchedAt: performance.now() };
    this.#open.set(key, begun);
    return begun;
  }

  #requirePlace(total: number): void {
    const idle = performance.now() - IDLE_MS;
    for (const [key, { touchedAt }] of this.#open) if (touchedAt < idle) this.#open.delete(key);
    const bytes = [...this.#open.values()].reduce((sum, one) => sum + one.total, total);
    if (this.#open.size < MOST_OPEN.uploads && bytes <= MOST_OPEN.bytes) return;
    throw new HoldfastError('overloaded', 'Too many files are being attached at once', {
      why: `${this.#open.size} uploads are under way`,
      next: 'try again in a minute',
    });
  }

  #store(sessionId: string, bytes: Buffer): UploadProgress {
    const { database, uploads, contents, now } = this.#options;
    this.expire();
    const facts = imageFacts(bytes);
    const content = database.transaction(() => {
      const waiting = uploads.waiting(sessionId);
      if (waiting.files >= MOST_WAITING.files || waiting.bytes + bytes.length > MOST_WAITING.bytes) {
        throw new HoldfastError('overloaded', 'Too many attached files wait for a prompt', {
          why: `the session has ${waiting.files} of them, ${waiting.bytes} bytes in all`,
          next: 'send them with a prompt; what no prompt has named is removed after a week',
        });
      }
      const mediaType = facts?.mediaType ?? mediaTypeOf(bytes);
      const sha256 = hash('sha256', bytes);
      // An event may name the same bytes already.
      const isNamed = contents.find(sessionId, sha256) !== null && !uploads.has(sessionId, sha256);
      const stored = contents.append(sessionId, `attachment-${sha256}`, bytes, mediaType);
      if (!isNamed) uploads.put(sessionId, sha256, bytes.length, now());
      void failpoint('attachment.before-commit');
      return { ...stored, mediaType };
    });
    void failpoint('attachment.after-commit');
    return { content, kind: facts === null ? 'file' : 'image' };
  }

  #describe(
    sessionId: string,
    sha256: string,
    name: string,
  ): { readonly kind: 'image' | 'file'; readonly content: Content } {
    const { contents } = this.#options;
    const content = contents.find(sessionId, sha256);
    if (content === null) {
      throw new HoldfastError('not_found', `The attachment ${attachmentName(name)} is gone`, {
        why: 'the session has no content of this hash; uploads that no prompt names are removed after a week',
        next: 'attach the file again',
      });
    }
    requireSize(content.bytes);
    // Its stored type may be that of an output with the same bytes.
    const facts = imageFacts(contents.read(sessionId, sha256, 0, HEADER_BYTES).part);
    return facts === null
      ? { kind: 'file', content }
      : { kind: 'image', content: { ...content, mediaType: facts.mediaType } };
  }
}

function requireSize(bytes: number): void {
  if (bytes <= ATTACHMENT_LIMITS.bytes) return;
  throw new HoldfastError('file_too_large', 'The file is too large to attach', {
    why: `it has ${bytes} bytes, and the maximum is ${ATTACHMENT_LIMITS.bytes}`,
    next: 'copy it into the workspace, and name it in the prompt',
  });
}

/** `name`, or `name-2.ext` where another attachment of the prompt has it. */
function unusedName(name: string, taken: ReadonlySet<string>): string {
  const dot = name.lastIndexOf('.');
  const [stem, extension] = dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, ''];
  let unused = name;
  for (let nth = 2; taken.has(unused.toLowerCase()); nth += 1) {
    const end = `-${nth}${extension.length <= 16 ? extension : ''}`;
    const room = ATTACHMENT_LIMITS.nameBytes - Buffer.byteLength(end);
    let start = stem;
    while (Buffer.byteLength(start) > room) start = Array.from(start).slice(0, -1).join('');
    unused = attachmentName(start + end);
  }
  return unused;
}
