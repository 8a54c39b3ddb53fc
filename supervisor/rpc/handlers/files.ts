import { HoldfastError } from '../../../protocol/errors.ts';
import type { FILES_METHODS } from '../../../protocol/files.ts';
import {
  type HandlerContext,
  type Handlers,
  type Progress,
  withBytes,
} from '../../../protocol/wire/shapes.ts';
import type { SnapshotFiles } from '../../snapshots/files/snapshot-files.ts';
import type { FilesConnection } from '../../workspace/files-connection.ts';
import type { FilesConnections, FilesChannel } from '../../workspace/files-connections.ts';
import type { KeyedReadWriteLock } from '../../base/keyed-read-write-lock.ts';

/** Reads and writes up to this size use the quick channel. */
const QUICK_BYTES = 64 * 1024;

interface Client {
  readonly closed: Promise<unknown>;
}

export interface FilesHandlersOptions {
  readonly connections: FilesConnections;
  readonly writeLock: Pick<KeyedReadWriteLock, 'runShared'>;
  /** The id of the session that a client names. Errors: `not_found`, `ambiguous_name`. */
  readonly sessionId: (reference: string) => string;
  /** Runs `act` with the files of a snapshot, which are kept until it has ended. Errors: `not_found`, also for a snapshot of another session. */
  readonly withSnapshotFiles: <T>(
    snapshot: string,
    session: string | undefined,
    act: (files: SnapshotFiles) => Promise<T>,
  ) => Promise<T>;
}

/** The handlers of `files/*`. The sidecar answers for workspaces, because the supervisor opens no file there. */
export function filesHandlers<P extends Client>(
  options: FilesHandlersOptions,
): Handlers<typeof FILES_METHODS, P> {
  const { connections, writeLock, sessionId, withSnapshotFiles } = options;
  /** The owner of each upload, because ids are no secrets. */
  const uploads = new Map<string, { readonly client: P; readonly session: string }>();

  const on = <T>(
    reference: string,
    channel: FilesChannel,
    isRepeatable: boolean,
    call: (connection: FilesConnection) => Promise<T>,
  ): Promise<T> => connections.use(sessionId(reference), channel, isRepeatable, call);
  /** A change that a restore must not overwrite. */
  const change = <T>(
    reference: string,
    channel: FilesChannel,
    call: (connection: FilesConnection) => Promise<T>,
  ): Promise<T> => {
    const id = sessionId(reference);
    return writeLock.runShared(id, () => connections.use(id, channel, false, call));
  };
  const passing = ({ signal, progress }: HandlerContext<P>) => ({
    signal,
    onProgress: ({ stage, done, of, unit }: Progress) =>
      progress(stage, done ?? undefined, of ?? undefined, unit ?? undefined),
  });
  /** Passes the bytes to the sidecar and releases the buffer then. */
  const passingBytes = ({ bytes, releaseBytes }: HandlerContext<P>) => ({
    bytes,
    onBytesTaken: releaseBytes,
  });
  const own = (upload: string, reference: string, client: P): string => {
    const known = uploads.get(upload);
    if (known?.client !== client || known.session !== sessionId(reference)) {
      throw new HoldfastError('not_found', 'There is no such upload', { next: 'begin again' });
    }
    return known.session;
  };

  return {
    'files/stat': async ({ session, snapshot, ...params }, context) => {
      if (snapshot !== undefined) {
        return await withSnapshotFiles(snapshot, session, (files) => files.stat(params.path, params));
      }
      const live = named(session);
      return (await on(live, 'quick', true, (one) => one.call('files/stat', params, passing(context))))
        .result;
    },
    'files/list': async ({ session, snapshot, ...params }, context) => {
      if (snapshot !== undefined) {
        return await withSnapshotFiles(snapshot, session, (files) =>
          files.list(params.path, params, context.signal),
        );
      }
      const live = named(session);
      return (await on(live, 'quick', true, (one) => one.call('files/list', params, passing(context))))
        .result;
    },
    'files/read': async ({ session, snapshot, ...params }, context) => {
      if (snapshot !== undefined) {
        const part = await withSnapshotFiles(snapshot, session, (files) => files.read(params.path, params));
        const { bytes: content, ...result } = part;
        return withBytes(result, content);
      }
      const channel = (params.length ?? Infinity) <= QUICK_BYTES ? 'quick' : 'bulk';
      const { result, bytes, release } = await on(named(session), channel, true, (one) =>
        one.call('files/read', params, passing(context)),
      );
      return withBytes(result, bytes, release);
    },
    'files/write': async ({ session, ...params }, context) => {
      const channel = context.bytes.length <= QUICK_BYTES ? 'quick' : 'bulk';
      return (
        await change(session, channel, (one) =>
          one.call('files/write', params, { ...passing(context), ...passingBytes(context) }),
        )
      ).result;
    },
    'files/begin': async ({ session, ...params }, context) => {
      const client = context.peer;
      const id = sessionId(session);
      const { result } = await on(id, 'bulk', false, (one) =>
        one.call('files/begin', params, passing(context)),
      );
      uploads.set(result.upload, { client, session: id });
      const abandon = async (): Promise<void> => {
        if (!uploads.delete(result.upload)) return;
        await on(id, 'bulk', false, (one) => one.call('files/abort', { upload: result.upload }));
      };
      void client.closed.then(abandon).catch(() => undefined); // then it ended with its connection
      return result;
    },
    'files/append': async ({ session, ...params }, context) => {
      const id = own(params.upload, session, context.peer);
      return (
        await on(id, 'bulk', false, (one) =>
          one.call('files/append', params, { ...passing(context), ...passingBytes(context) }),
        )
      ).result;
    },
    'files/commit': async ({ session, ...params }, context) => {
      const id = own(params.upload, session, context.peer);
      try {
        return (await change(id, 'bulk', (one) => one.call('files/commit', params, passing(context)))).result;
      } finally {
        uploads.delete(params.upload);
      }
    },
    'files/abort': async ({ session, ...params }, context) => {
      const id = own(params.upload, session, context.peer);
      uploads.delete(params.upload);
      return (await on(id, 'bulk', false, (one) => one.call('files/abort', params, passing(context)))).result;
    },
    'files/create': async ({ session, ...params }, context) =>
      (await change(session, 'quick', (one) => one.call('files/create', params, passing(context)))).result,
    'files/mkdir': async ({ session, ...params }, context) =>
      (await change(session, 'quick', (one) => one.call('files/mkdir', params, passing(context)))).result,
    'files/symlink': async ({ session, ...params }, context) =>
      (await change(session, 'quick', (one) => one.call('files/symlink', params, passing(context)))).result,
    'files/rename': async ({ session, ...params }, context) =>
      (await change(session, 'quick', (one) => one.call('files/rename', params, passing(context)))).result,
    'files/copy': async ({ session, ...params }, context) =>
      (await change(session, 'quick', (one) => one.call('files/copy', params, passing(context)))).result,
    'files/delete': async ({ session, ...params }, context) =>
      (await change(session, 'quick', (one) => one.call('files/delete', params, passing(context)))).result,
  };
}

function named(session: string | undefined): string {
  if (session !== undefined) return session;
  throw new HoldfastError('invalid_params', 'The request names no session and no snapshot', {
    next: 'name one of them',
  });
}
