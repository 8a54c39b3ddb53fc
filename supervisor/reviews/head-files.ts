import { createHash } from 'node:crypto';
import { PlainIgnoreRules } from '../../protocol/plain-ignore.ts';
import type { TimeSlice } from '../../protocol/time-slice.ts';
import { readContent } from '../../snapshot-format/content.ts';
import {
  type DirectoryEntry,
  entriesOf,
  type FileEntry,
  parseRoot,
  type SymlinkEntry,
  type TreeEntry,
} from '../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS, type ObjectReader } from '../../snapshot-format/objects.ts';
import type { PathSegments } from '../snapshots/compare/differences.ts';
import type { TreeEdit } from './accepted-tree.ts';
import type { NewObjects } from './store-objects.ts';

/** A file or a link of a commit. */
export interface HeadFile {
  readonly path: PathSegments;
  readonly mode: '100644' | '100755' | '120000';
  /** Its id in git. */
  readonly blob: string;
  readonly size: number;
  /** Whether the commit that was deployed has the path, too. */
  readonly wasDeployed: boolean;
}

/** Files of a commit by their path: a latin1 character for each byte. */
export type HeadFiles = ReadonlyMap<string, HeadFile>;

export interface BeginningFile {
  readonly path: PathSegments;
  readonly entry: TreeEntry;
}

/** Everything but folders in the tree `root`, in order. */
export async function* filesOf(
  reader: ObjectReader,
  root: Hash,
  slices: TimeSlice,
): AsyncGenerator<BeginningFile, void, undefined> {
  async function* inside(
    folder: DirectoryEntry,
    path: PathSegments,
  ): AsyncGenerator<BeginningFile, void, undefined> {
    for await (const entry of entriesOf(reader, folder)) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      const below = [...path, entry.name];
      if (entry.type === 'directory') yield* inside(entry, below);
      else yield { path: below, entry };
    }
  }
  yield* inside(parseRoot(await reader.read(root, OBJECT_KINDS.root)), []);
}

export function rawPathOf(path: PathSegments): string {
  return path.map((name) => name.toString('latin1')).join('/');
}

/** Whether a stored file has the content that git knows by this id. Modes may differ. */
export async function hasContent(
  reader: ObjectReader,
  entry: TreeEntry,
  { mode, blob, size }: HeadFile,
  slices: TimeSlice,
): Promise<boolean> {
  if (entry.type === 'symlink') {
    return mode === '120000' && entry.target.length === size && gitIdOf([entry.target], size) === blob;
  }
  if (entry.type !== 'file' || mode === '120000' || entry.size !== size || entry.sparse) return false;
  const hash = createHash('sha1').update(`blob ${size}\0`);
  for await (const { bytes } of readContent(reader, entry)) {
    if (slices.isUsedUp) await slices.yieldToEventLoop();
    hash.update(bytes);
  }
  return hash.digest('hex') === blob;
}

export function gitIdOf(parts: readonly Buffer[], size: number): string {
  const hash = createHash('sha1').update(`blob ${size}\0`);
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
}

/** Bounds for the ignore files of a commit. */
const MAX_IGNORE_FILES = 2000;
const MAX_IGNORE_BYTES = 64 * 1024;

/** What turns a tree into that of a commit. */
export class HeadEdits {
  readonly #head: HeadFiles;
  readonly #same: ReadonlySet<string>;
  readonly #contents: ReadonlyMap<string, Buffer>;
  readonly #objects: NewObjects;

  /** `same`: paths whose content the tree has. `contents`: of all others, by their ids in git. */
  constructor(options: {
    readonly head: HeadFiles;
    readonly same: ReadonlySet<string>;
    readonly contents: ReadonlyMap<string, Buffer>;
    readonly objects: NewObjects;
  }) {
    this.#head = options.head;
    this.#same = options.same;
    this.#contents = options.contents;
    this.#objects = options.objects;
  }

  /**
   * The edits for the tree `start`, with which the session began. What git does not track stays as it was there if the commit's
   * ignore files name it, and git's own folder does: a review still shows how it changed. A file that the deploy left out is left
   * out here, too: nobody deleted it.
   */
  async from(start: Hash, slices: TimeSlice): Promise<TreeEdit[]> {
    const edits: TreeEdit[] = [];
    const untracked: BeginningFile[] = [];
    const seen = new Set<string>();
    const ignoreFiles = new Map<string, Buffer>();
    for await (const { path, entry } of filesOf(this.#objects, start, slices)) {
      const raw = rawPathOf(path);
      const file = this.#head.get(raw);
      if (file === undefined) {
        untracked.push({ path, entry });
        continue;
      }
      seen.add(raw);
      const wanted = this.#same.has(raw) ? withModeOf(entry, file) : this.#entryOf(file, entry);
      if (wanted !== entry) edits.push({ path, entry: wanted });
      if (isIgnoreFile(file))
        ignoreFiles.set(raw, this.#contents.get(file.blob) ?? (await contentOf(this.#objects, entry)));
    }
    for (const [raw, file] of this.#head) {
      if (seen.has(raw) || file.wasDeployed) continue;
      const entry = this.#entryOf(file, null);
      edits.push({ path: file.path, entry });
      if (isIgnoreFile(file)) ignoreFiles.set(raw, this.#contents.get(file.blob) ?? Buffer.alloc(0));
    }
    const rules = new PlainIgnoreRules();
    for (const [folder, text] of textsByFolder(ignoreFiles)) rules.add(folder, text);
    for (const { path } of untracked) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      const raw = rawPathOf(path);
      const isGit = path.some((name) => name.equals(GIT_FOLDER));
      if (!isGit && !rules.ignores(raw)) edits.push({ path, entry: null });
    }
    return edits;
  }

  /** `before`: what the session began with at this path; its attributes stay, so that only what git knows differs. */
  #entryOf(file: HeadFile, before: TreeEntry | null): FileEntry | SymlinkEntry {
    const bytes = this.#contents.get(file.blob) ?? Buffer.alloc(0);
    const name = file.path.at(-1) ?? Buffer.alloc(0);
    const basics = { name, mtimeNs: before?.mtimeNs ?? 0n, xattrs: [], linkGroup: null };
    if (file.mode === '120000') return { ...basics, type: 'symlink', mode: 0o777, target: bytes };
    const model = before?.type === 'file' ? before : null;
    const mode = modeOf(model?.mode ?? null, file);
    const xattrs = model?.xattrs ?? [];
    return this.#objects.file(bytes, {
      ...{ ...basics, xattrs, mode, type: 'file', size: 0, sparse: false },
      content: { depth: 0, items: [] },
    });
  }
}

/** The later one's rules take precedence. The client leaves out what either names, because a deploy does. */
const IGNORE_FILES = ['.gitignore', '.holdfastignore'];
const GIT_FOLDER = Buffer.from('.git');

function isIgnoreFile({ path, size }: HeadFile): boolean {
  return IGNORE_FILES.includes(path.at(-1)?.toString('latin1') ?? '') && size <= MAX_IGNORE_BYTES;
}

/** The rules of each folder. `files`: ignore files by their paths. */
function textsByFolder(files: ReadonlyMap<string, Buffer>): Map<string, string> {
  const texts = new Map<string, string>();
  for (const name of IGNORE_FILES) {
    for (const [path, bytes] of [...files].slice(0, MAX_IGNORE_FILES)) {
      if (path !== name && !path.endsWith(`/${name}`)) continue;
      const folder = path.slice(0, -name.length - 1);
      const before = texts.get(folder);
      texts.set(folder, `${before === undefined ? '' : `${before}\n`}${bytes.toString('latin1')}`);
    }
  }
  return texts;
}

/** The entry itself if its mode is what git knows of it. */
function withModeOf(entry: TreeEntry, file: HeadFile): TreeEntry {
  if (entry.type !== 'file') return entry;
  const mode = modeOf(entry.mode, file);
  return mode === entry.mode ? entry : { ...entry, mode };
}

/** Git knows one bit of the permissions; the others are those of `before`. */
function modeOf(before: number | null, file: HeadFile): number {
  const isExecutable = file.mode === '100755';
  if (before !== null && ((before & 0o100) !== 0) === isExecutable) return before;
  return isExecutable ? 0o755 : 0o644;
}

async function contentOf(reader: ObjectReader, entry: TreeEntry): Promise<Buffer> {
  if (entry.type !== 'file' || entry.size > MAX_IGNORE_BYTES) return Buffer.alloc(0);
  const parts: Buffer[] = [];
  for await (const { bytes } of readContent(reader, entry)) parts.push(Buffer.from(bytes));
  return Buffer.concat(parts);
}
