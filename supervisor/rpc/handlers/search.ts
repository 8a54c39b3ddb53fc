import type { NOTIFICATIONS } from '../../../protocol/methods.ts';
import type { SEARCH_METHODS } from '../../../protocol/search.ts';
import type { Peer } from '../../../protocol/wire/peer.ts';
import type { Handlers, MethodMap, EmptyMap } from '../../../protocol/wire/shapes.ts';
import type { FilesConnections } from '../../workspace/files-connections.ts';

type Client = Pick<Peer<MethodMap, EmptyMap, typeof NOTIFICATIONS>, 'notify' | 'closed'>;

/** How long the sidecar waits for a line in one call. */
const WAIT_MS = 20_000;
const ANSWER_MS = 30_000;

export interface SearchHandlersOptions {
  readonly connections: FilesConnections;
  /** The id of the session that a client names. Errors: `not_found`, `ambiguous_name`. */
  readonly sessionId: (reference: string) => string;
}

/** The handlers of `files/search`, `files/find` and `files/usage`. A page is fetched when the client has read the one before. */
export function searchHandlers<P extends Client>(
  options: SearchHandlersOptions,
): Handlers<typeof SEARCH_METHODS, P> {
  const { connections, sessionId } = options;
  return {
    'files/search': async ({ session, token, ...params }, { peer, signal }) => {
      // Not repeated after an interruption: the client already has the lines that were found.
      return await connections.use(sessionId(session), 'bulk', false, async (connection) => {
        const { result: opened } = await connection.call('files/search-open', params, {
          signal,
          timeoutMs: ANSWER_MS,
        });
        const { search } = opened;
        let isOver = false;
        try {
          for (;;) {
            const { result: page } = await connection.call(
              'files/search-next',
              { search, waitMs: WAIT_MS },
              { signal, timeoutMs: WAIT_MS + ANSWER_MS },
            );
            if (page.lines.length > 0) await peer.notify('files/found', { token, lines: page.lines });
            if (page.summary === null) continue;
            isOver = true;
            return page.summary;
          }
        } finally {
          // Also after a cancellation, because nobody reads what the search would find.
          if (!isOver) {
            await connection
              .call('files/search-close', { search }, { timeoutMs: ANSWER_MS })
              .catch(() => undefined); // it ended with its connection
          }
        }
      });
    },
    'files/find': async ({ session, ...params }, { signal }) => {
      const { result } = await connections.use(sessionId(session), 'bulk', true, (connection) =>
        connection.call('files/find', params, { signal }),
      );
      return result;
    },
    'files/usage': async ({ session, ...params }, { signal, progress }) => {
      const { result } = await connections.use(sessionId(session), 'bulk', true, (connection) =>
        connection.call('files/usage', params, {
          signal,
          onProgress: ({ stage, done, unit }) =>
            progress(stage, done ?? undefined, undefined, unit ?? undefined),
        }),
      );
      return result;
    },
  };
}
