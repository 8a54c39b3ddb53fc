import { createReadStream } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Readable } from 'node:stream';
import { pack } from 'tar-stream';
import type { Pack } from 'tar-stream';

/** One of our folders as a tar stream: owned by root, readable by everybody. */
export function folderTar(root: string): Readable {
  const archive = pack();
  add(archive, root, '').then(
    () => archive.finalize(),
    (error: unknown) => archive.destroy(error instanceof Error ? error : new Error(String(error))),
  );
  return archive as unknown as Readable;
}

async function add(archive: Pack, root: string, relative: string): Promise<void> {
  const entries = await readdir(join(root, relative), { withFileTypes: true });
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const name = relative === '' ? entry.name : `${relative}/${entry.name}`;
    const path = join(root, name);
    const { size, mode, mtime } = await lstat(path);
    if (entry.isDirectory()) {
      archive.entry({ name, type: 'directory', mode: 0o755, mtime });
      await add(archive, root, name);
    } else if (entry.isSymbolicLink()) {
      archive.entry({ name, type: 'symlink', linkname: await readlink(path), mtime });
    } else if (entry.isFile()) {
      const sink = archive.entry({ name, size, mode: (mode & 0o111) === 0 ? 0o644 : 0o755, mtime });
      await pipeline(createReadStream(path), sink);
    }
  }
}
