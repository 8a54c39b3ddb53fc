import type { WATCH_SIDECAR_METHODS } from '../../protocol/watch.ts';
import type { Handlers } from '../../protocol/wire/shapes.ts';
import { ConnectionWatches, type WatchedTrees } from './watches.ts';

/** Handlers of `files/watch-*` for one connection. Its watches end when `closed` resolves. */
export function watchHandlers<P>(
  trees: WatchedTrees,
  closed: Promise<unknown>,
): Handlers<typeof WATCH_SIDECAR_METHODS, P> {
  const watches = new ConnectionWatches(trees);
  void closed.then(() => watches.close());
  return {
    'files/watch-open': ({ path, recursive, excludes }) =>
      watches.open({ path, recursive: recursive ?? true, excludes: excludes ?? [] }),
    'files/watch-next': ({ watch, waitMs }, { signal }) => watches.next(watch, waitMs, signal),
    'files/watch-close': ({ watch }) => {
      watches.end(watch);
      return {};
    },
  };
}
