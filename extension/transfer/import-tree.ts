import { constants } from 'node:fs';
import { lstat, open, opendir, readlink } from 'node:fs/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import { FILE_CHUNK_BYTES } from '../../protocol/files.ts';
import { encodeLink, encodeName } from '../../protocol/paths.ts';
import { TaskPool } from './task-pool.ts';
import { FILES_TOGETHER, TransferReport, askOnce, errorCodeOf, joinPath } from './transfer.ts';
import type { TransferOptions } from './transfer.ts';

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
const EXECUTABLE = 0o111;
const SMALLEST_READ = 4096;

/** The workspace that an import writes. */
export interface ImportTarget {
  makeFolder(path: string): Promise<void>;
  /** Errors: `file_exists` where something exists there and may not be replaced. */
  write(
    path: string,
    pieces: AsyncIterable<Buffer>,
    options: { readonly mode: number; readonly size: number; readonly overwrite: boolean },
  ): Promise<void>;
  /** Errors: `file_exists`. */
  link(path: string, text: string): Promise<void>;
  remove(path: string): Promise<void>;
}

/**
 * Copies files and folders of this machine into a folder of a workspace. Keeps execute bits; copies links and never
 * follows them.
 */
export async function importTree(
  locals: readonly string[],
  target: ImportTarget,
  folder: string,
  options: TransferOptions,
): Promise<TransferReport> {
  const report = new TransferReport();
  const files = new TaskPool(FILES_TOGETHER);
  const onExisting = askOnce(options.onExisting);

  /** Creates or replaces a file; false where it exists and the person keeps it. */
  const created = async (path: string, create: (overwrite: boolean) => Promise<void>): Promise<boolean> => {
    try {
      await create(false);
      return true;
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'file_exists') throw error;
    }
    if ((await onExisting(path)) === 'skip') {
      report.existing += 1;
      return false;
    }
    await create(true);
    return true;
  };

  const importFile = async (local: Buffer, path: string): Promise<void> => {
    const file = await open(local, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      const stat = await file.stat();
      if (!stat.isFile()) {
        report.leaveOut(local.toString(), 'it is not a file, folder or link');
        return;
      }
      const isExecutable = (stat.mode & EXECUTABLE) !== 0;
      const pieces = async function* (): AsyncGenerator<Buffer> {
        for (let offset = 0; ;) {
          options.signal.throwIfAborted();
          const left = Math.max(stat.size - offset, SMALLEST_READ);
          const piece = Buffer.allocUnsafe(Math.min(FILE_CHUNK_BYTES, left));
          const { buffer, bytesRead } = await file.read(piece, 0, piece.length, offset);
          if (bytesRead === 0) return;
          offset += bytesRead;
          report.bytes += bytesRead;
          options.onProgress(report, path);
          yield buffer.subarray(0, bytesRead);
        }
      };
      const mode = isExecutable ? 0o755 : 0o644;
      const isCreated = await created(path, (overwrite) =>
        target.write(path, pieces(), { mode, size: stat.size, overwrite }),
      );
      if (!isCreated) return;
      report.files += 1;
      if (isExecutable) report.executables += 1;
    } finally {
      await file.close();
    }
  };

  const importLink = async (local: Buffer, path: string): Promise<void> => {
    const text = encodeLink(await readlink(local, { encoding: 'buffer' }));
    const isCreated = await created(path, async (overwrite) => {
      if (overwrite) await target.remove(path);
      await target.link(path, text);
    });
    if (isCreated) report.links += 1;
  };

  const guarded = async (local: Buffer, path: string, work: () => Promise<void>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      const why = whyLeftOut(error);
      if (why === undefined) throw error;
      report.leaveOut(local.toString(), why);
    }
    options.onProgress(report, path);
  };

  const importEntry = async (local: Buffer, parent: string): Promise<void> => {
    options.signal.throwIfAborted();
    const name = local.subarray(local.lastIndexOf('/') + 1);
    const path = `${parent}/${encodeName(name)}`;
    if (name.toString() === '.git') {
      report.leaveOut(local.toString(), 'its configuration may contain passwords');
      return;
    }
    await guarded(local, path, async () => {
      const stat = await lstat(local);
      if (stat.isSymbolicLink()) await files.begin(() => guarded(local, path, () => importLink(local, path)));
      else if (stat.isFile()) await files.begin(() => guarded(local, path, () => importFile(local, path)));
      else if (stat.isDirectory()) {
        await target.makeFolder(path);
        report.folders += 1;
        for await (const entry of await opendir(local, { encoding: 'latin1' })) {
          await importEntry(joinPath(local, Buffer.from(entry.name, 'latin1')), path);
        }
      } else report.leaveOut(local.toString(), 'it is not a file, folder or link');
    });
  };

  try {
    for (const local of locals) await importEntry(Buffer.from(local), folder);
  } finally {
    // Nothing is written any more when an import has ended, however it did.
    await files.drain();
  }
  return report;
}

/** The reason for a failure that concerns only this file; undefined where the whole import must fail. */
function whyLeftOut(error: unknown): string | undefined {
  switch (errorCodeOf(error)) {
    case 'ENOENT':
    case 'ELOOP':
      return 'it changed while it was being read';
    case 'EACCES':
    case 'EPERM':
    case 'permission_denied':
      return 'permission denied';
    case 'file_exists':
    case 'file_is_a_directory':
    case 'file_not_a_directory':
    case 'directory_not_empty':
      return 'something else already exists there';
    default:
      return undefined;
  }
}
