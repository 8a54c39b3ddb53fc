import { createHash } from 'node:crypto';

/** A version of a file: the version string of the protocol, and the modification time. */
export interface FileVersion {
  readonly version: string;
  readonly mtimeMs: number;
}

interface Read extends FileVersion {
  /** The fingerprint of the text that was read. */
  readonly text: string;
}

interface Track {
  /** The latest reads, the newest last. */
  readonly reads: Read[];
  base: FileVersion | undefined;
}

const MAX_READS = 8;
/** Beyond this number files without a base are forgotten. */
const MAX_TRACKS = 500;

/**
 * The base of each document: the version of the file that its text is an edit of. A read does not set the base, because
 * other programs read files too, and a dirty document keeps its text. The base changes only when a clean document shows
 * a text that was read. All texts are compared by fingerprint.
 */
export class BaseVersions {
  readonly #tracks = new Map<string, Track>();

  /** `document`: the text of a clean document; null for a dirty one; undefined where none is open. */
  recordRead(key: string, version: FileVersion, text: string, document: string | null | undefined): void {
    const track = this.#track(key);
    track.reads.push({ ...version, text });
    track.reads.splice(0, track.reads.length - MAX_READS);
    if (document === text) track.base = version;
  }

  /**
   * A clean document shows this text: it was opened, reloaded, or undone to its base. False where no read had this
   * text: VS Code reports the first keystroke, and a text restored after a window reload, while it still calls the
   * document clean.
   */
  recordShownText(key: string, text: string): boolean {
    const track = this.#track(key);
    const read = track.reads.findLast((one) => one.text === text);
    if (read !== undefined) track.base = versionOf(read);
    return read !== undefined;
  }

  /** For a document in another encoding, whose text cannot be compared: its base is the latest read. */
  useLatestRead(key: string): void {
    const track = this.#track(key);
    const read = track.reads.at(-1);
    if (read !== undefined) track.base = versionOf(read);
  }

  /** Sets the base: this version was written, or a person has compared it with their own text. */
  set(key: string, version: FileVersion): void {
    this.#track(key).base = version;
  }

  /** Whether a recent read had this version and this text. */
  wasRead(key: string, { version }: FileVersion, text: string): boolean {
    const reads = this.#tracks.get(key)?.reads ?? [];
    return reads.some((one) => one.version === version && one.text === text);
  }

  get(key: string): FileVersion | undefined {
    return this.#tracks.get(key)?.base;
  }

  forget(key: string): void {
    this.#tracks.delete(key);
  }

  #track(key: string): Track {
    const track = this.#tracks.get(key) ?? { reads: [], base: undefined };
    // A Map keeps the order of insertion, so the least recently used come first.
    this.#tracks.delete(key);
    this.#tracks.set(key, track);
    if (this.#tracks.size > MAX_TRACKS) {
      for (const [other, { base }] of this.#tracks) {
        if (base === undefined) {
          this.#tracks.delete(other);
          break;
        }
      }
    }
    return track;
  }
}

function versionOf({ version, mtimeMs }: Read): FileVersion {
  return { version, mtimeMs };
}

interface StatWithVersion {
  readonly size: number;
  readonly mtimeNs: string;
  readonly version: string | null;
}

/**
 * The version of a document's base after the file was renamed or copied. Where the file changed meanwhile, it is the
 * old version, so that a save detects the conflict.
 */
export function versionAtNewPath(
  { version }: FileVersion,
  before: StatWithVersion | undefined,
  after: StatWithVersion | undefined,
): string {
  if (before === undefined || after === undefined || before.version !== version) return version;
  const isSame = before.mtimeNs === after.mtimeNs && before.size === after.size;
  return isSame ? (after.version ?? version) : version;
}

/** A hash that is equal for texts that an editor shows alike: byte order mark and kinds of line ends do not matter. */
export function fingerprint(text: string): string {
  const bare = text.startsWith('\ufeff') ? text.slice(1) : text;
  const lines = bare.includes('\r') ? bare.replace(/\r\n?/g, '\n') : bare;
  return createHash('sha1').update(lines).digest('base64');
}
