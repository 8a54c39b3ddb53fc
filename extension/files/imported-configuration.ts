import { FileSystemError, FileType } from 'vscode';
import type { FileStat, FileSystemProvider, Uri } from 'vscode';
import { sanitize } from '../base/sanitize.ts';
import { markPath } from './configuration-paths.ts';
import { baseName } from './location.ts';

/** How long VS Code can stat what it has just written. */
const RETAIN_MS = 30_000;
const MAX_RETAINED = 10_000;

interface Written {
  readonly stat: FileStat;
  readonly until: number;
}

/**
 * Accepts files and folders with configuration names that a person copies into a session, for example the `.github` of
 * a project that they drop on the Explorer. VS Code writes them under their real names and stats each before and after.
 * It only learns about what it wrote itself, never about an agent's files. An existing file is never replaced, because
 * VS Code cannot ask about a file that it does not see.
 */
export class ImportedConfiguration {
  readonly #files: FileSystemProvider;
  readonly #written = new Map<string, Written>();

  constructor(files: FileSystemProvider) {
    this.#files = files;
  }

  /**
   * The stat of what was written a moment ago. Errors: `FileNotFound` where the workspace has nothing under that name;
   * else `refusal`.
   */
  async stat(uri: Uri, refusal: FileSystemError): Promise<FileStat> {
    const written = this.#written.get(uri.toString());
    if (written !== undefined && written.until > Date.now()) return written.stat;
    if (/\/\.{0,2}\//.test(`${uri.path}/`)) throw refusal;
    throw (await this.#exists(uri)) ? refusal : FileSystemError.FileNotFound(uri);
  }

  async createDirectory(uri: Uri): Promise<void> {
    await this.#files.createDirectory(marked(uri));
    this.#retain(uri, FileType.Directory, 0);
  }

  async writeFile(uri: Uri, content: Uint8Array): Promise<void> {
    const target = marked(uri);
    if (await this.#exists(uri)) {
      const name = sanitize(baseName(target.path));
      throw FileSystemError.FileExists(
        `The session already has it as “${name}”. Delete or rename that one first`,
      );
    }
    await this.#files.writeFile(target, content, { create: true, overwrite: false });
    this.#retain(uri, FileType.File, content.byteLength);
  }

  async #exists(uri: Uri): Promise<boolean> {
    try {
      await this.#files.stat(marked(uri));
      return true;
    } catch (error) {
      if (error instanceof FileSystemError && error.code === 'FileNotFound') return false;
      throw error;
    }
  }

  #retain(uri: Uri, type: FileType, size: number): void {
    const now = Date.now();
    const key = uri.toString();
    // A Map keeps the order of insertion: the oldest come first.
    this.#written.delete(key);
    for (const [old, { until }] of this.#written) {
      if (until > now && this.#written.size < MAX_RETAINED) break;
      this.#written.delete(old);
    }
    this.#written.set(key, { stat: { type, size, ctime: now, mtime: now }, until: now + RETAIN_MS });
  }
}

function marked(uri: Uri): Uri {
  return uri.with({ path: markPath(uri.path), query: '', fragment: '' });
}
