import {
  type BigIntStats,
  type FSWatcher,
  fstatSync,
  lstatSync,
  opendirSync,
  readFileSync,
  watch,
} from 'node:fs';
import { encodeName, isReserved } from '../../protocol/paths.ts';
import type { FileChange, WatchMode } from '../../protocol/watch.ts';
import { type Directory, errnoOf, isAboutTheFile } from '../files/directory.ts';
import { Slices } from '../files/slices.ts';
import type { WatchBudget } from './budget.ts';
import type { Excludes } from './excludes.ts';
import { FolderOpener, namesOf, newFolder, type WatchedFolder } from './watched-folder.ts';

/** From the first change to telling of it. */
const BATCH_MS = 40;
/** Changed names that are kept until then. */
const MOST_CHANGED = 20_000;
const POLL_MS = 2000;
/** A pass over what is polled may take this part of the time. */
const POLL_SHARE = 10;
/** How often watches are asked for again where there were none left. */
const RETRY_MS = 30_000;
/** What the kernel keeps for one reader before it throws events away, unless the machine says otherwise. */
const USUAL_QUEUE = 16_384;
const SELF = '.';

export interface WatchListener {
  changed(path: string, kind: FileChange['kind']): void;
  /** More happened than is known: everything may be different. */
  overflow(): void;
  /** All of one batch was told. */
  told(): void;
}

export interface WatchTreeOptions {
  /** The folder, which is the tree's from now on. */
  readonly root: Directory;
  /** How the folder is spelled; what is told begins with it. */
  readonly path: string;
  readonly recursive: boolean;
  /** Tell of this one name only. */
  readonly only: Buffer | null;
  readonly excludes: Excludes | null;
  readonly budget: WatchBudget;
  readonly pollMs?: number;
}

/**
 * Everything below one folder: a watch on each folder, placed before it is read, so that nothing falls between. Folders for which no
 * watch is left are looked at every few seconds instead. Nothing is ever reached through a link or a name that moved.
 */
export class WatchTree {
  readonly #options: WatchTreeOptions;
  readonly #top: WatchedFolder;
  readonly #opener: FolderOpener;
  readonly #listeners = new Set<WatchListener>();
  readonly #ending = new AbortController();
  readonly #queueLength = kernelQueue();
  #changed = new Map<WatchedFolder, Map<string, boolean>>();
  #changedNames = 0;
  #lost = false;
  #inThisTurn = 0;
  #polled = 0;
  #beyond = false;
  #work: Promise<void> = Promise.resolve();
  #batch: NodeJS.Timeout | undefined;
  #poll: NodeJS.Timeout | undefined;
  #retryAt = 0;

  constructor(options: WatchTreeOptions) {
    this.#options = options;
    this.#opener = new FolderOpener(options.root);
    this.#top = newFolder(null, '', identityOf(fstatSync(options.root.fd, { bigint: true })));
    options.budget.folders += 1;
  }

  /** Resolves when every change from now on will be told. */
  async start(): Promise<void> {
    this.#work = this.#scan([this.#top], false);
    await this.#work;
    this.#schedulePoll(0);
  }

  get mode(): WatchMode {
    return this.#polled > 0 || this.#beyond ? 'polling' : 'inotify';
  }

  listen(listener: WatchListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.#ending.abort();
    clearTimeout(this.#batch);
    clearTimeout(this.#poll);
    await this.#work.catch(() => undefined); // it ended because of us
    this.#drop(this.#top);
    this.#opener.close();
    this.#options.root.close();
  }

  // What the kernel tells

  #onEvent(folder: WatchedFolder, event: string, name: Buffer | null): void {
    this.#countTurn();
    if (folder.gone || this.#lost) return;
    const latin = name?.toString('latin1') ?? SELF;
    // About the folder itself: whoever holds it hears of that too. Only the top has nobody above.
    if (latin === SELF && folder.parent !== null) return;
    let names = this.#changed.get(folder);
    if (names === undefined) this.#changed.set(folder, (names = new Map<string, boolean>()));
    if (!names.has(latin)) this.#changedNames += 1;
    names.set(latin, (names.get(latin) ?? false) || event === 'rename');
    if (this.#changedNames > MOST_CHANGED) this.#loseTrack();
    this.#scheduleBatch();
  }

  /** Node says nothing when the kernel's queue has run over; but then a full queue was read in one turn of the event loop. */
  #countTurn(): void {
    if (this.#inThisTurn === 0) setImmediate(() => (this.#inThisTurn = 0));
    this.#inThisTurn += 1;
    if (this.#inThisTurn >= this.#queueLength / 2) this.#loseTrack();
  }

  #loseTrack(): void {
    this.#lost = true;
    this.#changed.clear();
    this.#changedNames = 0;
    this.#scheduleBatch();
  }

  #scheduleBatch(): void {
    if (this.#batch !== undefined || this.#ending.signal.aborted) return;
    this.#batch = setTimeout(() => {
      this.#inTurn(() => this.#tellBatch());
    }, BATCH_MS);
  }

  /** One piece of work at a time: they share the open folder, and what they remember. */
  #inTurn(work: () => Promise<void>): void {
    this.#work = this.#work
      .then(work)
      .catch((error: unknown) => {
        if (this.#ending.signal.aborted) return;
        console.error('watch:', error);
        this.#overflow();
      })
      // By the next piece of work the folder may lie elsewhere.
      .finally(() => this.#opener.close());
  }

  async #tellBatch(): Promise<void> {
    this.#batch = undefined;
    if (this.#lost) {
      this.#lost = false;
      this.#overflow();
      await this.#scan([this.#top], false);
      return;
    }
    const changed = this.#changed;
    this.#changed = new Map();
    this.#changedNames = 0;
    const slices = new Slices(this.#ending.signal);
    for (const [folder, names] of changed) {
      if (folder.gone) continue;
      for (const [name, renamed] of names) {
        if (name === SELF) this.#checkTop();
        else if (!this.#isLeftOut(folder, name)) await this.#look(folder, name, renamed);
        if (slices.isLong) await slices.rest();
      }
    }
    this.#told();
  }

  /** What has become of one name. */
  async #look(folder: WatchedFolder, name: string, renamed: boolean): Promise<void> {
    const stat = this.#stat(folder, name);
    const child = folder.children.get(name);
    const known = folder.entries?.has(name);
    if (stat === null) {
      if (child !== undefined) this.#drop(child);
      if (known !== false) this.#tell(folder, name, 'deleted');
      this.#forget(folder, name);
      return;
    }
    if (child !== undefined && (!stat.isDirectory() || identityOf(stat) !== child.identity)) {
      this.#drop(child);
      // Something else of that name: what was below it is gone, and nobody heard of it.
      this.#overflow();
    }
    const isNew = known === false || (known === undefined && renamed);
    this.#remember(folder, name, signatureOf(stat));
    this.#tell(folder, name, isNew ? 'created' : 'changed');
    if (stat.isDirectory() && this.#options.recursive && !folder.children.has(name)) {
      await this.#scan(
        [this.#adopt(folder, name, stat)].filter((one) => one !== null),
        true,
      );
    }
  }

  #checkTop(): void {
    const { root, path } = this.#options;
    if (fstatSync(root.fd).nlink > 0) return;
    for (const listener of this.#listeners) {
      listener.changed(path, 'deleted');
      listener.overflow();
    }
  }

  // Reading folders

  /** Places watches on folders and all below, and learns what is in them. With `tell`, all of it is news. */
  async #scan(from: readonly WatchedFolder[], tell: boolean): Promise<void> {
    const slices = new Slices(this.#ending.signal);
    const todo = [...from];
    for (let folder = todo.pop(); folder !== undefined; folder = todo.pop()) {
      if (!folder.gone) todo.push(...(await this.#read(folder, tell, slices)));
      if (slices.isLong) await slices.rest();
    }
  }

  /** Returns folders in it that were not known. What was known and is gone is told. */
  async #read(folder: WatchedFolder, tell: boolean, slices: Slices): Promise<WatchedFolder[]> {
    const directory = this.#open(folder);
    if (directory === null) return [];
    this.#place(folder, directory);
    const isPolled = folder.watcher === null;
    const before = folder.entries;
    const seen = new Map<string, string>();
    const found: WatchedFolder[] = [];
    let fits = true;
    // Opened once more: resting, others may look at other folders.
    const entries = opendirSync(directory.self, { encoding: 'latin1', bufferSize: 512 });
    try {
      for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
        const { name } = entry;
        if (slices.isLong) await slices.rest();
        if (this.#isLeftOut(folder, name)) continue;
        const stat = isPolled || entry.isDirectory() ? this.#stat(folder, name) : undefined;
        if (stat === null) continue;
        const signature = stat === undefined ? '' : signatureOf(stat);
        fits = fits && this.#options.budget.hasNames(seen.size - (before?.size ?? 0) + 1);
        if (fits) seen.set(name, signature);
        const was = before?.get(name);
        if (tell) this.#tell(folder, name, 'created');
        else if (before !== null && isPolled) {
          if (was === undefined) this.#tell(folder, name, 'created');
          else if (was !== signature && was !== '' && stat?.isDirectory() !== true)
            this.#tell(folder, name, 'changed');
        }
        if (stat?.isDirectory() !== true || !this.#options.recursive) continue;
        const child = folder.children.get(name);
        if (child?.identity === identityOf(stat)) {
          if (!isPolled || this.#lostBefore(child)) found.push(child);
          continue;
        }
        if (child !== undefined) {
          this.#drop(child);
          this.#overflow();
        }
        const adopted = this.#adopt(folder, name, stat);
        if (adopted !== null) found.push(adopted);
      }
    } finally {
      entries.closeSync();
    }
    if (before !== null && fits) {
      for (const name of before.keys()) {
        if (seen.has(name)) continue;
        const child = folder.children.get(name);
        if (child !== undefined) this.#drop(child);
        if (isPolled) this.#tell(folder, name, 'deleted');
      }
    }
    this.#options.budget.names += (fits ? seen.size : 0) - (before?.size ?? 0);
    folder.entries = fits ? seen : null;
    return found;
  }

  /** A folder that was never read. */
  #lostBefore(folder: WatchedFolder): boolean {
    return folder.entries === null && folder.stamp === '';
  }

  #adopt(folder: WatchedFolder, name: string, stat: BigIntStats): WatchedFolder | null {
    const { budget } = this.#options;
    if (!budget.hasFolder) {
      this.#beyond = true;
      return null;
    }
    budget.folders += 1;
    const child = newFolder(folder, name, identityOf(stat));
    folder.children.set(name, child);
    return child;
  }

  #place(folder: WatchedFolder, directory: Directory): void {
    if (folder.watcher !== null) return;
    const { budget } = this.#options;
    const wasPolled = folder.stamp !== '';
    if (budget.hasWatch && performance.now() >= this.#retryAt) {
      const watcher = this.#tryWatch(directory, (event, name) => this.#onEvent(folder, event, name));
      if (watcher !== null) {
        watcher.on('error', () => this.#unplace(folder));
        folder.watcher = watcher;
        folder.stamp = '';
        budget.watches += 1;
        if (wasPolled) this.#polled -= 1;
        return;
      }
      this.#retryAt = performance.now() + RETRY_MS;
    }
    if (!wasPolled) this.#polled += 1;
    folder.stamp = stampOf(directory);
  }

  #tryWatch(directory: Directory, onEvent: (event: string, name: Buffer | null) => void): FSWatcher | null {
    try {
      // Through the descriptor: the watch is on this folder, whatever its name leads to by now.
      return watch(directory.self, { encoding: 'buffer', persistent: false }, onEvent);
    } catch (error) {
      switch (errnoOf(error)) {
        case 'EMFILE':
        case 'ENFILE':
        case 'ENOSPC':
        case 'ENOMEM':
          return null;
        case undefined:
        default:
          if (isAboutTheFile(error)) return null;
          throw error;
      }
    }
  }

  #unplace(folder: WatchedFolder): void {
    if (folder.watcher === null) return;
    folder.watcher.close();
    folder.watcher = null;
    this.#options.budget.watches -= 1;
    if (folder.gone) return;
    folder.stamp = 'unknown';
    this.#polled += 1;
    this.#schedulePoll(0);
  }

  // Polling

  #schedulePoll(tookMs: number): void {
    clearTimeout(this.#poll);
    if (this.#polled === 0 || this.#ending.signal.aborted) return;
    const pause = Math.max(this.#options.pollMs ?? POLL_MS, tookMs * POLL_SHARE);
    this.#poll = setTimeout(() => this.#inTurn(() => this.#pollAll()), pause);
  }

  async #pollAll(): Promise<void> {
    const since = performance.now();
    const slices = new Slices(this.#ending.signal);
    const todo = [this.#top];
    for (let folder = todo.pop(); folder !== undefined; folder = todo.pop()) {
      if (folder.gone) continue;
      if (folder.watcher === null) await this.#pollOne(folder, slices);
      if (slices.isLong) await slices.rest();
      todo.push(...folder.children.values());
    }
    this.#checkTop();
    this.#told();
    this.#schedulePoll(performance.now() - since);
  }

  async #pollOne(folder: WatchedFolder, slices: Slices): Promise<void> {
    const directory = this.#open(folder);
    if (directory === null) return;
    const stamp = stampOf(directory);
    if (folder.entries === null && folder.stamp !== stamp && folder.stamp !== 'unknown') {
      this.#tellFolder(folder);
    }
    folder.stamp = stamp;
    const fresh = await this.#read(folder, false, slices);
    if (fresh.length > 0) await this.#scan(fresh, true);
  }

  // Small things

  #open(folder: WatchedFolder): Directory | null {
    try {
      const directory = this.#opener.open(folder);
      if (identityOf(fstatSync(directory.fd, { bigint: true })) === folder.identity) return directory;
    } catch (error) {
      if (!isAboutTheFile(error)) throw error;
    }
    // Moved, removed or replaced: the folder above hears of it.
    this.#opener.close();
    return null;
  }

  #stat(folder: WatchedFolder, name: string): BigIntStats | null {
    const directory = this.#open(folder);
    if (directory === null) return null;
    try {
      return lstatSync(directory.pathOf(Buffer.from(name, 'latin1')), { bigint: true });
    } catch (error) {
      if (isAboutTheFile(error)) return null;
      throw error;
    }
  }

  #isLeftOut(folder: WatchedFolder, name: string): boolean {
    const { only, excludes } = this.#options;
    const bytes = Buffer.from(name, 'latin1');
    if (isReserved(bytes)) return true;
    if (only !== null) return !only.equals(bytes);
    if (excludes === null) return false;
    return excludes(
      [...namesOf(folder), name].map((one) => encodeName(Buffer.from(one, 'latin1'))).join('/'),
    );
  }

  #remember(folder: WatchedFolder, name: string, signature: string): void {
    if (folder.entries === null) return;
    const { budget } = this.#options;
    if (!folder.entries.has(name)) {
      if (!budget.hasNames(1)) {
        budget.names -= folder.entries.size;
        folder.entries = null;
        return;
      }
      budget.names += 1;
    }
    folder.entries.set(name, signature);
  }

  #forget(folder: WatchedFolder, name: string): void {
    if (folder.entries?.delete(name) === true) this.#options.budget.names -= 1;
  }

  /** Lets go of a folder and all below. */
  #drop(top: WatchedFolder): void {
    const { budget } = this.#options;
    const todo = [top];
    for (let folder = todo.pop(); folder !== undefined; folder = todo.pop()) {
      if (folder.gone) continue;
      folder.gone = true;
      if (folder.watcher !== null) {
        folder.watcher.close();
        folder.watcher = null;
        budget.watches -= 1;
      } else if (folder.stamp !== '') this.#polled -= 1;
      budget.names -= folder.entries?.size ?? 0;
      budget.folders -= 1;
      folder.entries = null;
      todo.push(...folder.children.values());
    }
    top.parent?.children.delete(top.name);
  }

  #tell(folder: WatchedFolder, name: string, kind: FileChange['kind']): void {
    const path = this.#spelled([...namesOf(folder), name]);
    for (const listener of this.#listeners) listener.changed(path, kind);
  }

  #tellFolder(folder: WatchedFolder): void {
    for (const listener of this.#listeners) listener.changed(this.#spelled(namesOf(folder)), 'changed');
  }

  #spelled(names: readonly string[]): string {
    return [this.#options.path, ...names.map((one) => encodeName(Buffer.from(one, 'latin1')))].join('/');
  }

  #overflow(): void {
    for (const listener of this.#listeners) listener.overflow();
    this.#told();
  }

  #told(): void {
    for (const listener of this.#listeners) listener.told();
  }
}

function identityOf({ dev, ino }: BigIntStats): string {
  return `${dev}:${ino}`;
}

function signatureOf({ ino, mtimeNs, ctimeNs, size }: BigIntStats): string {
  return `${ino}:${mtimeNs}:${ctimeNs}:${size}`;
}

function stampOf({ fd }: Directory): string {
  const { mtimeNs, ctimeNs } = fstatSync(fd, { bigint: true });
  return `${mtimeNs}:${ctimeNs}`;
}

function kernelQueue(): number {
  try {
    return Number(readFileSync('/proc/sys/fs/inotify/max_queued_events', 'utf8')) || USUAL_QUEUE;
  } catch {
    return USUAL_QUEUE; // it is not told in every sandbox
  }
}
