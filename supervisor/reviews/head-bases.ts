import { randomBytes } from 'node:crypto';
import { parseProjectPath, type ProjectOrigin } from '../../protocol/deploy.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { HEAD_LIMITS, type HeadEntry } from '../../protocol/review-base.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { parseHash } from '../../snapshot-format/objects.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { BaseTree } from '../snapshots/base-trees.ts';
import { filesOf, gitIdOf, hasContent, HeadEdits, type HeadFile, rawPathOf } from './head-files.ts';
import type { ReviewTrees } from './review-trees.ts';

/** Uploads at once; each keeps the files of a commit in memory. */
const MOST_UPLOADS = 4;
/** A client that sends nothing for so long is gone. */
const IDLE_MS = 300_000;

interface Upload {
  readonly id: string;
  readonly owner: object;
  readonly sessionId: string;
  readonly lineage: string;
  readonly commit: string;
  readonly start: string;
  readonly files: Map<string, HeadFile>;
  /** Set when the list of files has ended: the blobs that the client sends, with their sizes. */
  missing: Promise<readonly Missing[]> | null;
  /** Paths whose content the session began with. */
  readonly same: Set<string>;
  readonly contents: Map<string, Buffer>;
  /** Parts of the content that is being received. */
  parts: Buffer[];
  idle: NodeJS.Timeout;
}

type Missing = Pick<HeadFile, 'blob' | 'size'>;

export interface HeadBasesOptions {
  readonly trees: Pick<ReviewTrees, 'use' | 'storeEdited'>;
  readonly baseTrees: { find(session: SessionRow): BaseTree | null };
}

/** What a client needs to know to list the files of its commit. */
export interface HeadBase {
  readonly upload: string;
  readonly origin: ProjectOrigin;
  readonly folder: string;
}

/**
 * Commits of a person's repository as bases of reviews. The client lists the files; those that the session began with are found by
 * their ids in git, and the contents of all others are sent, and compared with their ids. Nothing is stored before `store`.
 */
export class HeadBases {
  readonly #options: HeadBasesOptions;
  readonly #uploads = new Map<string, Upload>();

  constructor(options: HeadBasesOptions) {
    this.#options = options;
  }

  /** Where the session's files come from. Errors: `not_supported` if the project was deployed without git. */
  originOf(session: SessionRow): Omit<HeadBase, 'upload'> {
    const { origin, folder } = this.#baseOf(session);
    return { origin, folder };
  }

  /** `owner`: the connection that sends it. Errors: those of `originOf`, `overloaded`. */
  begin(session: SessionRow, commit: string, owner: object): HeadBase {
    const { origin, folder, root } = this.#baseOf(session);
    if (this.#uploads.size >= MOST_UPLOADS) {
      throw new HoldfastError('overloaded', 'The review cannot be opened now', {
        why: `${MOST_UPLOADS} other commits are being compared`,
        next: 'try again when one of them is done',
      });
    }
    const id = randomBytes(16).toString('hex');
    this.#uploads.set(id, {
      ...{ id, owner, commit, start: root, sessionId: session.id, lineage: session.lineage },
      ...{ files: new Map(), same: new Set(), missing: null, contents: new Map(), parts: [] },
      idle: this.#endWhenIdle(id),
    });
    return { upload: id, origin, folder };
  }

  /** Errors: `invalid_params`, after which the upload is over. */
  append(id: string, owner: object, entries: readonly HeadEntry[]): void {
    const upload = this.#get(id, owner);
    this.#guard(upload, () => {
      if (upload.missing !== null) throw malformed('a file follows the end of the list');
      if (upload.files.size + entries.length > HEAD_LIMITS.files)
        throw malformed(`the commit has more than ${HEAD_LIMITS.files} files`);
      for (const { path, ...file } of entries) {
        const names = parseProjectPath(path);
        const raw = rawPathOf(names);
        if (names.length === 0 || upload.files.has(raw)) throw malformed('a path was sent twice');
        upload.files.set(raw, { ...file, path: names });
      }
    });
  }

  /** A page of the blobs that the client has to send. */
  async missing(
    id: string,
    owner: object,
    from: number,
    signal?: AbortSignal,
  ): Promise<{ blobs: string[]; next: number | null }> {
    const upload = this.#get(id, owner);
    try {
      const all = await (upload.missing ??= this.#compare(upload, signal));
      const blobs = all.slice(from, from + HEAD_LIMITS.entries).map(({ blob }) => blob);
      const next = from + blobs.length;
      return { blobs, next: next < all.length ? next : null };
    } catch (error) {
      this.end(id, owner);
      throw error;
    }
  }

  /** The next bytes of the missing contents. Errors: `invalid_params`, after which the upload is over. */
  async receive(id: string, owner: object, bytes: Buffer): Promise<void> {
    const upload = this.#get(id, owner);
    const missing = upload.missing === null ? null : await upload.missing;
    this.#guard(upload, () => {
      if (missing === null || bytes.length > HEAD_LIMITS.requestBytes)
        throw malformed('nothing is missing yet');
      // The caller reuses its buffer.
      let rest = Buffer.from(bytes);
      for (;;) {
        const wanted = missing[upload.contents.size];
        if (wanted === undefined) {
          if (rest.length > 0) throw malformed('it has more bytes than the missing files');
          return;
        }
        const received = upload.parts.reduce((sum, part) => sum + part.length, 0);
        const part = rest.subarray(0, wanted.size - received);
        rest = rest.subarray(part.length);
        upload.parts.push(part);
        if (received + part.length < wanted.size) return;
        if (gitIdOf(upload.parts, wanted.size) !== wanted.blob)
          throw malformed('a content is not the one that its id names');
        upload.contents.set(wanted.blob, Buffer.concat(upload.parts));
        upload.parts = [];
      }
    });
  }

  /**
   * Stores the tree of the commit and runs `record` with its root before any object of it can be collected. The upload is over
   * then. `target`: the tree that has the attributes of new folders.
   */
  async store<T>(
    session: SessionRow,
    { upload: id, owner, commit, target }: { upload: string; owner: object; commit: string; target: string },
    record: (root: string) => T,
    signal?: AbortSignal,
  ): Promise<T> {
    const upload = this.#get(id, owner);
    try {
      const missing = upload.missing === null ? null : await upload.missing;
      if (upload.sessionId !== session.id || upload.commit !== commit)
        throw malformed('it is of another session or commit');
      if (missing === null || upload.contents.size < missing.length) throw malformed('files are missing');
      return await this.#options.trees.storeEdited(
        { lineage: session.lineage, baseRoot: upload.start, targetRoot: target },
        (objects) =>
          new HeadEdits({
            ...{ head: upload.files, same: upload.same, contents: upload.contents, objects },
          }).from(parseHash(upload.start), new TimeSlice(signal)),
        record,
        signal,
      );
    } finally {
      this.end(id, owner);
    }
  }

  /** Does nothing if the upload has ended. */
  end(id: string, owner: object): void {
    const upload = this.#uploads.get(id);
    if (upload?.owner !== owner) return;
    clearTimeout(upload.idle);
    this.#uploads.delete(id);
  }

  /** Which contents the session did not begin with. Errors: `output_limit` if they are too many. */
  async #compare(upload: Upload, signal?: AbortSignal): Promise<readonly Missing[]> {
    const missing = new Map<string, number>();
    const found = new Set<string>();
    const slices = new TimeSlice(signal);
    await this.#options.trees.use(upload.lineage, async (reader) => {
      for await (const { path, entry } of filesOf(reader, parseHash(upload.start), slices)) {
        const raw = rawPathOf(path);
        const file = upload.files.get(raw);
        if (file === undefined) continue;
        found.add(raw);
        if (await hasContent(reader, entry, file, slices)) upload.same.add(raw);
        else missing.set(file.blob, file.size);
      }
    });
    for (const [raw, { blob, size, wasDeployed }] of upload.files)
      if (!found.has(raw) && !wasDeployed) missing.set(blob, size);
    const bytes = [...missing.values()].reduce((sum, size) => sum + size, 0);
    if (bytes > HEAD_LIMITS.bytes) {
      throw new HoldfastError('output_limit', 'The commit cannot be the base of a review', {
        why:
          `what it has and the session did not begin with are ${Math.ceil(bytes / 2 ** 20)} MiB, ` +
          `and the limit is ${HEAD_LIMITS.bytes / 2 ** 20} MiB`,
        next: 'use --base start',
      });
    }
    return [...missing].map(([blob, size]) => ({ blob, size }));
  }

  #baseOf(session: SessionRow): BaseTree & { readonly origin: ProjectOrigin } {
    const base = this.#options.baseTrees.find(session);
    if (base !== null && base.origin !== null) return { ...base, origin: base.origin };
    throw new HoldfastError('not_supported', `${session.name} cannot be compared with a commit`, {
      why: 'its project was deployed without git, or the origin of its files is unknown',
      next: 'use --base start',
    });
  }

  #guard(upload: Upload, act: () => void): void {
    clearTimeout(upload.idle);
    upload.idle = this.#endWhenIdle(upload.id);
    try {
      act();
    } catch (error) {
      this.end(upload.id, upload.owner);
      throw error;
    }
  }

  #endWhenIdle(id: string): NodeJS.Timeout {
    return setTimeout(() => this.#uploads.delete(id), IDLE_MS).unref();
  }

  #get(id: string, owner: object): Upload {
    const upload = this.#uploads.get(id);
    if (upload?.owner === owner) return upload;
    throw new HoldfastError('interrupted', 'The review was not opened', {
      why: 'the upload of the commit has ended',
      next: 'open it again',
    });
  }
}

function malformed(why: string): HoldfastError {
  return new HoldfastError('invalid_params', 'The commit cannot be the base of a review', {
    why,
    next: 'open the review again',
  });
}
