import type { FILES_METHODS } from '../../../protocol/files.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { StorageLimits } from '../../workspace/storage-limits.ts';

/** The same handlers, except that requests which would add to a workspace over its limit fail with `storage_limit`. */
export function withStorageLimits<P>(
  handlers: Handlers<typeof FILES_METHODS, P>,
  limits: Pick<StorageLimits, 'requireSpace'>,
  sessionId: (reference: string) => string,
): Handlers<typeof FILES_METHODS, P> {
  const requireSpace = (session: string, path: string, adding: number): Promise<void> =>
    limits.requireSpace(sessionId(session), `${path} is not written`, adding);
  return {
    ...handlers,
    'files/write': async (params, context) => {
      await requireSpace(params.session, params.path, context.bytes.length);
      return await handlers['files/write'](params, context);
    },
    'files/begin': async (params, context) => {
      await requireSpace(params.session, params.path, 0);
      return await handlers['files/begin'](params, context);
    },
    'files/append': async (params, context) => {
      await requireSpace(params.session, 'The upload', context.bytes.length);
      return await handlers['files/append'](params, context);
    },
    'files/create': async (params, context) => {
      await requireSpace(params.session, params.path, 0);
      return await handlers['files/create'](params, context);
    },
    'files/mkdir': async (params, context) => {
      await requireSpace(params.session, params.path, 0);
      return await handlers['files/mkdir'](params, context);
    },
    'files/symlink': async (params, context) => {
      await requireSpace(params.session, params.path, 0);
      return await handlers['files/symlink'](params, context);
    },
    'files/copy': async (params, context) => {
      await requireSpace(params.session, params.to, 0);
      return await handlers['files/copy'](params, context);
    },
  };
}
