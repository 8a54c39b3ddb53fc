import { FileSystemError, FileType } from 'vscode';
import type { FileStat, FileSystemProvider, Uri } from 'vscode';
import { sanitize } from '../base/sanitize.ts';
import { markPath } from './configuration-paths.ts';
import { baseName } from './location.ts';

/** VS Code looks at what it has written at once; a busy machine takes a moment. */
const KNOWN_MS = 30_000;
const MOST_KNOWN = 10_000;

interface Known {
  readonly stat: FileStat;
  readonly until: number;
}

/**
 * Files and folders with names of configuration that a person brings into a session: a project that they drop on the Explorer, or copy, has its `.github`
 * under its real name. VS Code writes them under that name, and looks at each before and after. It learns only what it wrote itself: nothing
 * that an agent wrote is told, and nothing that is there already is replaced, because VS Code cannot ask about what it does not see.
 */
export class ImportedConfiguration {
  readonly #files: FileSystemProvider;
  readonly #known = new Map<string, Known>();

  constructor(files: FileSystemProvider) {
    this.#files = files;
  }

  /** What was brought in a moment ago. Errors: `FileNotFound` where the workspace has nothing of that name, `refusal` where it has. */
  async stat(uri: Uri, refusal: FileSystemError): Promise<FileStat> {
    const known = this.#known.get(uri.toString());
    if (known !== undefined && known.until > Date.now()) return known.stat;
    if (/\/\.{0,2}\//.test(`${uri.path}/`)) throw refusal;
    throw (await this.#exists(uri)) ? refusal : FileSystemError.FileNotFound(uri);
  }

  async createDirectory(uri: Uri): Promise<void> {
    await this.#files.createDirectory(marked(uri));
    this.#keep(uri, FileType.Directory, 0);
  }

  async writeFile(uri: Uri, content: Uint8Array): Promise<void> {
    const target = marked(uri);
    if (await this.#exists(uri)) {
      const name = sanitize(baseName(target.path));
      throw FileSystemError.FileExists(`It is there already, as “${name}”. Delete or rename that one first`);
    }
    await this.#files.writeFile(target, content, { create: true, overwrite: false });
    this.#keep(uri, FileType.File, content.byteLength);
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

  #keep(uri: Uri, type: FileType, size: number): void {
    const now = Date.now();
    const key = uri.toString();
    // The oldest are in front.
    this.#known.delete(key);
    for (const [old, { until }] of this.#known) {
      if (until > now && this.#known.size < MOST_KNOWN) break;
      this.#known.delete(old);
    }
    this.#known.set(key, { stat: { type, size, ctime: now, mtime: now }, until: now + KNOWN_MS });
  }
}

function marked(uri: Uri): Uri {
  return uri.with({ path: markPath(uri.path), query: '', fragment: '' });
}
