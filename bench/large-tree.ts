import { chownSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Files in one folder, and folders in one. */
const WIDTH = 25;
const WORDS =
  'const return import export from function async await if else for of new this string number type interface class private readonly null undefined value result error path name file index length buffer offset session snapshot object'.split(
    ' ',
  );

/** A tree like a repository's: text that compresses as code does, many small files and a few large ones. Always the same. */
export class LargeTree {
  readonly #root: string;
  readonly #files: number;
  readonly #mean: number;
  #state = 1;

  constructor(root: string, files: number, bytes: number) {
    this.#root = root;
    this.#files = files;
    this.#mean = bytes / files;
  }

  /** Writes it, for whoever owns the folder. Gives its bytes. */
  write(): number {
    let bytes = 0;
    for (let file = 0; file < this.#files; file += 1) {
      const path = this.#pathOf(file);
      if (file % WIDTH === 0) mkdirSync(join(path, '..'), { recursive: true });
      // One in fifty is ten times as large.
      const size = Math.round(this.#mean * (file % 50 === 0 ? 10 : 0.4 + this.#random() * 0.83));
      writeFileSync(path, this.#text(size));
      bytes += size;
    }
    this.#own(this.#root);
    return bytes;
  }

  /** Writes some of the files again, other ones for each round. Gives how many bytes. */
  rewriteSome(count: number, round: number): number {
    const { uid, gid } = statSync(this.#root);
    let bytes = 0;
    for (let at = 0; at < count; at += 1) {
      const file = (at * 4969 + round * 131) % this.#files;
      const text = this.#text(Math.round(this.#mean));
      writeFileSync(this.#pathOf(file), text);
      chownSync(this.#pathOf(file), uid, gid);
      bytes += text.length;
    }
    return bytes;
  }

  /** Paths of some files, below the tree. */
  samplePaths(count: number): string[] {
    return Array.from({ length: count }, (_, at) =>
      this.#pathOf((at * 4969) % this.#files).slice(this.#root.length + 1),
    );
  }

  #pathOf(file: number): string {
    const folder = Math.floor(file / WIDTH);
    return join(
      this.#root,
      `part-${Math.floor(folder / WIDTH)}`,
      `folder-${folder % WIDTH}`,
      `module-${file % WIDTH}.ts`,
    );
  }

  #own(path: string): void {
    const { uid, gid } = statSync(this.#root);
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      const below = join(path, entry.name);
      chownSync(below, uid, gid);
      if (entry.isDirectory()) this.#own(below);
    }
  }

  #text(size: number): string {
    const parts: string[] = [];
    for (let length = 0; length < size;) {
      const word = `${WORDS[Math.floor(this.#random() * WORDS.length)] ?? ''}${this.#random() < 0.2 ? Math.floor(this.#random() * 1e6) : ''}${this.#random() < 0.12 ? ';\n' : ' '}`;
      parts.push(word);
      length += word.length;
    }
    return parts.join('').slice(0, size);
  }

  /** 0 ≤ n < 1 (mulberry32). */
  #random(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
}
