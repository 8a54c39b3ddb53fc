import type { FILES_SIDECAR_METHODS } from '../../protocol/files.ts';
import { FILE_CHUNK_BYTES, LIST_LIMITS } from '../../protocol/files.ts';
import type { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { type Handlers, withBytes } from '../../protocol/wire/shapes.ts';
import { withFileErrors } from './file-errors.ts';
import type { Uploads } from './uploads.ts';
import type { WorkspaceFiles } from './workspace-files.ts';

/** Handlers of `files/*` for one connection. Its uploads end when `closed` resolves. */
export function filesHandlers<P>(
  files: WorkspaceFiles,
  payloads: BufferPool,
  closed: Promise<unknown>,
): Handlers<typeof FILES_SIDECAR_METHODS, P> {
  let opened: Promise<Uploads> | undefined;
  const uploads = (): Promise<Uploads> => {
    if (opened === undefined) {
      opened = files.uploads();
      void Promise.all([opened, closed]).then(
        ([open]) => open.close(),
        () => undefined, // No uploads were opened.
      );
    }
    return opened;
  };

  return {
    'files/stat': ({ path, follow, version }, { signal }) =>
      files.stat(path, { follow: follow ?? true, version: version ?? false, signal }),
    'files/list': ({ path, cursor, limit }, { signal }) =>
      files.list(path, { cursor, limit: limit ?? LIST_LIMITS.default, signal }),
    'files/read': async ({ path, offset = 0, length = FILE_CHUNK_BYTES, ifVersion }, { signal }) => {
      const { bytes, ...facts } = await files.read(path, { offset, length, ifVersion, signal, payloads });
      return withBytes({ offset, ...facts }, bytes, () => payloads.release(bytes));
    },
    'files/write': async ({ path, ...precondition }, { bytes, releaseBytes, signal }) => {
      const written = await files.write(path, precondition, bytes, signal);
      releaseBytes();
      return written;
    },
    'files/begin': async ({ path, ...precondition }) => {
      const [open, target] = await Promise.all([uploads(), files.target(path)]);
      return { upload: await withFileErrors(path, () => open.begin(target, precondition)) };
    },
    'files/append': async ({ upload, offset }, { bytes, releaseBytes }) => {
      const open = await uploads();
      const size = await withFileErrors(open.pathOf(upload), () => open.append(upload, offset, bytes));
      releaseBytes();
      return { size };
    },
    'files/commit': async ({ upload, size }) => {
      const open = await uploads();
      return await withFileErrors(open.pathOf(upload), () => open.commit(upload, size));
    },
    'files/abort': async ({ upload }) => {
      (await uploads()).abort(upload);
      return {};
    },
    'files/create': ({ path, mode }, { signal }) =>
      files.write(path, { create: true, mode }, Buffer.alloc(0), signal),
    'files/mkdir': async ({ path, parents }) => ({ created: await files.mkdir(path, parents ?? false) }),
    'files/symlink': async ({ path, link }) => {
      await files.symlink(path, link);
      return {};
    },
    'files/rename': async ({ from, to, overwrite }) => {
      await files.rename(from, to, overwrite ?? false);
      return {};
    },
    'files/copy': ({ from, to, overwrite }, { signal, progress }) =>
      files.copy(from, to, overwrite ?? false, {
        signal,
        onProgress: (copied) => progress('copying', copied.files, undefined, 'files'),
      }),
    'files/delete': ({ path, recursive }, { signal, progress }) =>
      files.delete(path, {
        recursive: recursive ?? false,
        signal,
        onProgress: (removed) => progress('removing', removed.files, undefined, 'files'),
      }),
  };
}
