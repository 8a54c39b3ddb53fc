import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { z } from 'zod';
import type { HomeFileSchema } from '../../sidecar/wire.ts';

const PART_BYTES = 2 ** 20;
const PART_FILES = 500;

type HomeFile = z.input<typeof HomeFileSchema>;

/** What one call writes to HOME. */
export interface HomePart {
  readonly files: readonly HomeFile[];
  /** The bytes of all files, one after the other. */
  readonly content: Buffer;
}

/** Reads a deployed configuration, in parts that fit in a message. A deploy has checked its paths, kinds and sizes. */
export async function* configurationParts(folder: string): AsyncGenerator<HomePart> {
  let files: HomeFile[] = [];
  let content: Buffer[] = [];
  let bytes = 0;
  for await (const path of filesBelow(folder, '')) {
    const at = join(folder, path);
    const [text, { mode }] = [await readFile(at), await stat(at)];
    if (files.length > 0 && (files.length === PART_FILES || bytes + text.length > PART_BYTES)) {
      yield { files, content: Buffer.concat(content) };
      files = [];
      content = [];
      bytes = 0;
    }
    files.push({ path, size: text.length, executable: (mode & 0o100) !== 0 });
    content.push(text);
    bytes += text.length;
  }
  if (files.length > 0) yield { files, content: Buffer.concat(content) };
}

async function* filesBelow(root: string, folder: string): AsyncGenerator<string> {
  const entries = await readdir(join(root, folder), { withFileTypes: true });
  for (const entry of entries.sort((one, other) => (one.name < other.name ? -1 : 1))) {
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) yield* filesBelow(root, path);
    else yield path;
  }
}
