import { HoldfastError } from '../../protocol/errors.ts';
import type { SNAPSHOT_METHODS } from '../../protocol/snapshots.ts';
import type { HandlerContext, Handlers, Progress } from '../../protocol/wire/shapes.ts';
import type { SnapshotService } from './service.ts';
import { snapshotView } from './view.ts';

export interface SnapshotHandlersOptions {
  readonly service: SnapshotService;
}

/** The answers to `snapshot/*`. */
export function snapshotHandlers<P>({
  service,
}: SnapshotHandlersOptions): Handlers<typeof SNAPSHOT_METHODS, P> {
  const later = (): never => {
    throw new HoldfastError('not_supported', 'This version does not do that with snapshots');
  };
  const passing = ({ signal, progress }: HandlerContext<P>) => ({
    signal,
    onProgress: ({ stage, done, of, unit }: Progress) =>
      progress(stage, done ?? undefined, of ?? undefined, unit ?? undefined),
  });
  return {
    'snapshot/create': async ({ session, ...request }, context) => {
      const { row, created } = await service.create(service.session(session), {
        ...request,
        ...passing(context),
      });
      return { ...snapshotView(row), created };
    },
    'snapshot/list': ({ session, ...filter }) => service.list(service.session(session), filter),
    'snapshot/show': ({ snapshot, session }) => ({ snapshot: snapshotView(service.find(snapshot, session)) }),
    'snapshot/update': ({ snapshot, session, ...patch }) => ({
      snapshot: snapshotView(service.update(service.find(snapshot, session), patch)),
    }),
    'snapshot/verify': later,
    'snapshot/delete': ({ snapshot, session, force, opId }) => {
      service.delete(snapshot, session, force, opId);
      return {};
    },
    'snapshot/diff': later,
    'snapshot/patch': later,
    'snapshot/preview': later,
    'snapshot/restore': later,
    'snapshot/fork': later,
  };
}
