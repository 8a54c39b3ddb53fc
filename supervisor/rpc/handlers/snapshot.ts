import type { SNAPSHOT_METHODS } from '../../../protocol/snapshots.ts';
import {
  type HandlerContext,
  type Handlers,
  type Progress,
  withBytes,
} from '../../../protocol/wire/shapes.ts';
import type { SessionService } from '../../sessions/session-service.ts';
import type { Comparisons } from '../../snapshots/comparisons.ts';
import type { SnapshotMaintenance } from '../../snapshots/maintenance.ts';
import type { Restores } from '../../snapshots/restores.ts';
import type { SnapshotGraphs } from '../../snapshots/snapshot-graph.ts';
import type { SnapshotService } from '../../snapshots/snapshot-service.ts';

export interface SnapshotHandlersOptions {
  readonly sessions: Pick<SessionService, 'view' | 'fork'>;
  readonly service: SnapshotService;
  readonly snapshotGraphs: SnapshotGraphs;
  readonly comparisons: Comparisons;
  readonly maintenance: SnapshotMaintenance;
  readonly restores: Restores;
}

/** The answers to `snapshot/*`. */
export function snapshotHandlers<P>({
  sessions,
  service,
  snapshotGraphs,
  comparisons,
  maintenance,
  restores,
}: SnapshotHandlersOptions): Handlers<typeof SNAPSHOT_METHODS, P> {
  const callOptions = ({ signal, progress }: HandlerContext<P>) => ({
    signal,
    onProgress: ({ stage, done, of, unit }: Progress) =>
      progress(stage, done ?? undefined, of ?? undefined, unit ?? undefined),
  });
  return {
    'snapshot/create': async ({ session, ...request }, context) => {
      const { row, created } = await service.create(service.findSession(session), {
        ...request,
        ...callOptions(context),
      });
      return { ...service.view(row), created };
    },
    'snapshot/list': async ({ session, ...filter }) => {
      const row = service.findSession(session);
      return { ...service.list(row, filter), usage: await maintenance.usage(row) };
    },
    'snapshot/graph': ({ session }) => snapshotGraphs.of(service.findSession(session)),
    'snapshot/show': ({ snapshot, session }) => ({ snapshot: service.view(service.find(snapshot, session)) }),
    'snapshot/update': ({ snapshot, session, ...patch }) => ({
      snapshot: service.view(service.update(service.find(snapshot, session), patch)),
    }),
    'snapshot/verify': ({ snapshot, session }, { signal }) =>
      maintenance.verify(service.find(snapshot, session), signal),
    'snapshot/delete': ({ snapshot, session, force, opId }) => {
      service.delete(snapshot, session, force, opId);
      return {};
    },
    'snapshot/diff': (request, context) => comparisons.diff(request, callOptions(context)),
    'snapshot/patch': async (request, context) => {
      const { bytes, ...result } = await comparisons.patch(request, callOptions(context));
      return withBytes({ ...result, bytes: bytes.length }, bytes);
    },
    'snapshot/preview': (request, context) => comparisons.preview(request, callOptions(context)),
    'snapshot/restore': async ({ session, snapshot, withState, path, cancel, force, opId }, context) => {
      const row = service.findSession(session);
      const source = service.find(snapshot, row.id);
      const restored = await restores.restore(row, {
        snapshot: source,
        path: path ?? null,
        withState: withState ?? false,
        cancel: cancel ?? false,
        force: force ?? false,
        opId,
        ...callOptions(context),
      });
      return { ...restored, missing: source.missing, missingPaths: source.missingPaths };
    },
    'snapshot/fork': async ({ snapshot, session, name, opId }) => {
      const source = service.find(snapshot, session);
      const made = sessions.view(await sessions.fork(source, name, opId));
      return { session: made, missing: source.missing, missingPaths: source.missingPaths };
    },
  };
}
