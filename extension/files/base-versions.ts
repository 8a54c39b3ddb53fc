import { createHash } from 'node:crypto';

/** What a file held when it was seen. */
export interface FileVersion {
  readonly version: string;
  readonly mtimeMs: number;
}

interface Reading extends FileVersion {
  /** Of the text that these bytes are; see `fingerprint`. */
  readonly text: string;
}

interface Track {
  /** The last few, the newest last. */
  readonly readings: Reading[];
  base: FileVersion | undefined;
}

const READINGS = 8;
/** Files that were read and have no document are forgotten beyond these. */
const MOST_TRACKS = 500;

/**
 * Which version of a file the text in an editor began as. A read says what is on the disk, not what the editor shows: others read
 * too, and a dirty document stays as it is. So the base moves only when a document without changes shows the text that was read.
 */
export class BaseVersions {
  readonly #tracks = new Map<string, Track>();

  /** `document`: the fingerprint of a document without changes, where there is one; null where it is dirty. */
  recordRead(key: string, seen: FileVersion, text: string, document: string | null | undefined): void {
    const track = this.#track(key);
    track.readings.push({ ...seen, text });
    track.readings.splice(0, track.readings.length - READINGS);
    if (document === text) track.base = seen;
  }

  /**
   * A document without changes shows this text: it was just opened, loaded again, or undone to what it was. False where nobody has
   * read such a text: the first keystroke, and a text kept from before a reload, are told of before the document is called dirty.
   */
  recordShownText(key: string, text: string): boolean {
    const track = this.#track(key);
    const reading = track.readings.findLast((one) => one.text === text);
    if (reading !== undefined) track.base = seenOf(reading);
    return reading !== undefined;
  }

  /** What it shows cannot be compared (another encoding): then it is what was read last. */
  useLatestRead(key: string): void {
    const track = this.#track(key);
    const reading = track.readings.at(-1);
    if (reading !== undefined) track.base = seenOf(reading);
  }

  /** From here on the document counts as an edit of this: it was written, or a person has seen it beside their own. */
  set(key: string, seen: FileVersion): void {
    this.#track(key).base = seen;
  }

  /** Whether this version was read, with this text. */
  wasRead(key: string, { version }: FileVersion, text: string): boolean {
    const readings = this.#tracks.get(key)?.readings ?? [];
    return readings.some((one) => one.version === version && one.text === text);
  }

  get(key: string): FileVersion | undefined {
    return this.#tracks.get(key)?.base;
  }

  forget(key: string): void {
    this.#tracks.delete(key);
  }

  #track(key: string): Track {
    const known = this.#tracks.get(key);
    const track = known ?? { readings: [], base: undefined };
    // The latest stay: a Map keeps the order of insertion.
    this.#tracks.delete(key);
    this.#tracks.set(key, track);
    if (this.#tracks.size > MOST_TRACKS) {
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

function seenOf({ version, mtimeMs }: Reading): FileVersion {
  return { version, mtimeMs };
}

interface Looked {
  readonly size: number;
  readonly mtimeNs: string;
  readonly version: string | null;
}

/** The version of the base under its new name. Where the file was changed meanwhile the old one stays, and a save finds the conflict. */
export function versionAtNewPath(
  { version }: FileVersion,
  before: Looked | undefined,
  after: Looked | undefined,
): string {
  if (before === undefined || after === undefined || before.version !== version) return version;
  const isSame = before.mtimeNs === after.mtimeNs && before.size === after.size;
  return isSame ? (after.version ?? version) : version;
}

/** Equal for texts that an editor shows alike: it drops a byte order mark and makes all line ends one. */
export function fingerprint(text: string): string {
  const bare = text.startsWith('\ufeff') ? text.slice(1) : text;
  const lines = bare.includes('\r') ? bare.replace(/\r\n?/g, '\n') : bare;
  return createHash('sha1').update(lines).digest('base64');
}
