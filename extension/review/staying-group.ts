import { isDeepStrictEqual } from 'node:util';
import type { SourceControlResourceGroup, SourceControlResourceState } from 'vscode';
import { type RawPath, toBytes } from '../../project/raw-path.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import type { OpenReview } from './open-review.ts';
import { type StayingFile, whatStays } from './will-not-travel.ts';

const LABEL = 'Will Not Travel';
/** How many entries the view has. */
const MAX_LISTED = 500;
/** An agent may have written it. */
const MAX_IGNORE_BYTES = 64 * 1024;
const IGNORE_FILE = Buffer.from('.gitignore');

/** An ignore file as it was read; `version` is another one where its content may be. */
interface KnownIgnoreFile {
  readonly version: string;
  readonly text: string | null;
}

export interface StayingGroupOptions {
  readonly connection: Pick<Connection, 'callWithBytes'>;
  readonly review: OpenReview;
  /** Whether the window still shows the review: its groups go with it. */
  readonly isShown: () => boolean;
  /** When there are others than before. */
  readonly onShown: () => void;
}

/** The group of a review's changes that a handoff would leave behind or put into quarantine. Nothing is decided in it. */
export class StayingGroup {
  readonly #options: StayingGroupOptions;
  readonly #group: SourceControlResourceGroup;
  readonly #ignoreFiles = new Map<RawPath, KnownIgnoreFile>();
  #files: readonly StayingFile[] = [];
  #isRunning = false;
  #isWanted = false;

  constructor(options: StayingGroupOptions) {
    this.#options = options;
    this.#group = options.review.control.createResourceGroup('willNotTravel', LABEL);
    this.#group.hideWhenEmpty = true;
  }

  /** As they were found last. */
  get files(): readonly StayingFile[] {
    return this.#files;
  }

  /** Looks at the changes again. Without a connection the group stays as it is. */
  async refresh(): Promise<void> {
    this.#isWanted = true;
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      while (this.#isWanted && this.#options.isShown()) {
        this.#isWanted = false;
        const staying = await whatStays(this.#options.review.files, (folder) => this.#ignoreFile(folder));
        if (this.#options.isShown()) this.#show(staying);
      }
    } catch {
      // The next change of the review tries again.
    } finally {
      this.#isRunning = false;
    }
  }

  #show(staying: readonly StayingFile[]): void {
    if (isDeepStrictEqual(staying, this.#files)) return;
    this.#files = staying;
    const isAll = staying.length <= MAX_LISTED;
    this.#group.label = isAll
      ? LABEL
      : `${LABEL} (the first ${MAX_LISTED} of ${formatCount(staying.length, 'change')})`;
    this.#group.resourceStates = staying.slice(0, MAX_LISTED).map((one) => this.#resource(one));
    this.#options.onShown();
  }

  #resource({ file, why }: StayingFile): SourceControlResourceState {
    const { review } = this.#options;
    return {
      resourceUri: review.uriOf(file, 'target'),
      contextValue: 'willNotTravel',
      decorations: { faded: true, tooltip: sanitize(`Stays behind at a handoff: ${why}`) },
      command: { command: 'holdfast.openChange', title: 'Open Change', arguments: [{ review, file }] },
    };
  }

  async #ignoreFile(folder: RawPath): Promise<string | null> {
    const { connection, review } = this.#options;
    const names = folder === '' ? [] : folder.split('/').map(toBytes);
    const path = formatPath([...names, IGNORE_FILE]);
    const changed = review.fileAt(path);
    const { revision, base } = review.review ?? {};
    // Only a decision about it, or another base, makes another one of it.
    const version = `${base?.root} ${changed === undefined ? '' : `${changed.id} ${revision}`}`;
    const known = this.#ignoreFiles.get(folder);
    if (known?.version === version) return known.text;
    const text = await read(connection, { session: review.session.id, path });
    this.#ignoreFiles.set(folder, { version, text });
    return text;
  }
}

async function read(
  connection: Pick<Connection, 'callWithBytes'>,
  file: { readonly session: string; readonly path: string },
): Promise<string | null> {
  try {
    const { bytes, release } = await connection.callWithBytes('review/read', { ...file, side: 'accepted' });
    const text = Buffer.from(bytes.subarray(0, MAX_IGNORE_BYTES)).toString('latin1');
    release();
    return text;
  } catch (error) {
    if (HoldfastError.from(error).code.startsWith('file_')) return null;
    throw error;
  }
}
