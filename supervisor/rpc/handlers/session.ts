import { HoldfastError } from '../../../protocol/errors.ts';
import type { METHODS, NOTIFICATIONS, Params } from '../../../protocol/methods.ts';
import type { Peer } from '../../../protocol/wire/peer.ts';
import { type Handlers, type EmptyMap, withBytes } from '../../../protocol/wire/shapes.ts';
import { type Turn, ENDED_TURN_STATUSES } from '../../../protocol/entities.ts';
import type { Attachments } from '../../history/attachments.ts';
import type { Checkpoints } from '../../history/checkpoints.ts';
import type { HistoryCuts } from '../../history/history-cuts.ts';
import type { Contents } from '../../history/contents.ts';
import type { EventLog } from '../../history/event-log.ts';
import { verifyHistory } from '../../history/history-verification.ts';
import type { TurnOutput } from '../../history/turn-output.ts';
import type { TurnPaths } from '../../store/turn-paths.ts';
import type { Turns } from '../../store/turns.ts';
import type { TurnSnapshots } from '../../snapshots/turn-snapshots.ts';
import type { ExecListener, Execs } from '../../terminals/execs.ts';
import type { TurnQueue } from '../../turns/turn-queue.ts';
import type { ChangeNotifier } from '../../base/change-notifier.ts';
import type { Ids } from '../../base/ids.ts';
import type { SessionService } from '../../sessions/session-service.ts';
import { EventSubscription } from './event-subscription.ts';

/** A client's connection, as handlers see it. */
export type Client = Pick<Peer<typeof METHODS, EmptyMap, typeof NOTIFICATIONS>, 'notify' | 'closed'>;

const OUTPUT_BYTES = 1024 * 1024;
const DAY_MS = 86_400_000;
const LISTED_OUTPUT_CHARACTERS = 256;
/** How long a request waits for what a turn changed. */
const PENDING_CHANGES_MS = 10_000;

type Groups = 'history' | 'session' | 'attachment' | 'content' | 'turn' | 'exec' | 'workspace';
type SessionMethods = {
  [
    M in keyof typeof METHODS as M extends 'session/search'
      ? never
      : M extends `${Groups}/${string}`
        ? M
        : never
  ]: (typeof METHODS)[M];
};

export interface SessionHandlersOptions {
  readonly service: SessionService;
  readonly queue: TurnQueue;
  readonly execs: Execs;
  readonly changes: ChangeNotifier;
  readonly turnSnapshots: Pick<TurnSnapshots, 'followProgress'>;
  readonly events: EventLog;
  readonly output: TurnOutput;
  readonly contents: Contents;
  readonly checkpoints: Pick<Checkpoints, 'verify'>;
  readonly historyCuts: Pick<HistoryCuts, 'cut'>;
  readonly attachments: Pick<Attachments, 'receive'>;
  readonly turns: Turns;
  readonly turnPaths: Pick<TurnPaths, 'get'>;
  readonly ids: Ids;
}

/** The answers to `session/*`, `history/*`, `attachment/*`, `content/*`, `turn/*`, `exec/*` and `workspace/*`. */
export function sessionHandlers<P extends Client>(
  options: SessionHandlersOptions,
): Handlers<SessionMethods, P> {
  const { service, events, output, contents, attachments: files, turns, ids } = options;
  const { checkpoints, historyCuts } = options;
  const { queue, changes, execs, turnPaths, turnSnapshots } = options;
  const subscriptions = new Map<string, { readonly client: P; readonly subscription: EventSubscription }>();

  return {
    'session/create': async ({ profile, name, from, opId }) => {
      const snapshot = from?.slice('snapshot:'.length);
      return { session: service.view(await service.create(profile, name, snapshot, opId)) };
    },
    'session/list': (filter) => service.list(filter),
    'session/show': ({ session }) => ({ session: service.view(service.find(session)) }),
    'session/pause': async ({ session }) => ({
      session: service.view(await service.pause(service.find(session))),
    }),
    'session/stop': async ({ session, force }) => ({
      session: service.view(await service.stop(service.find(session), force ?? false)),
    }),
    'session/resume': async (
      { session, from = 'files', cancel = false, force = false, opId },
      { signal, progress },
    ) => {
      const { ready, undo } = await service.resume(service.find(session), {
        from,
        cancel,
        force,
        opId,
        signal,
        onProgress: ({ stage, done, of, unit }) =>
          progress(stage, done ?? undefined, of ?? undefined, unit ?? undefined),
      });
      return {
        session: service.view(service.find(ready.row.id)),
        undo,
        sandbox: ready.dispatched,
        timings: { dispatchMs: ready.dispatchMs },
      };
    },
    'session/update': ({ session, ...patch }) => ({
      session: service.view(service.update(service.find(session), patch)),
    }),
    'session/delete': async ({ session, force, opId }) => {
      await service.deleteNamed(session, force, opId);
      return {};
    },

    'session/events': ({ session, after, limit, type }) => {
      const row = service.find(session);
      const page = events.read(row.id, { after: after ?? 0, limit: limit ?? 1000, type });
      return { events: page, lastSeq: events.head(row.id).seq };
    },
    'session/subscribe': ({ session, after }, { peer }) => {
      const row = service.find(session);
      const id = ids.next('sub');
      const subscription = new EventSubscription(events, row.id, after ?? 0, (event) =>
        peer.notify('session/event', { subscription: id, event }),
      );
      subscriptions.set(id, { client: peer, subscription });
      const end = (): void => {
        subscription.stop();
        subscriptions.delete(id);
      };
      void peer.closed.then(end);
      // After the response: the client has to know the subscription's id before its first event.
      setImmediate(() => {
        void subscription.run().then(end, async () => {
          end();
          // The log could not be read: the client has to subscribe again from its position.
          await peer
            .notify('session/resync', { subscription: id, lastSeq: events.head(row.id).seq })
            .catch(() => undefined);
        });
      });
      return { subscription: id, lastSeq: events.head(row.id).seq };
    },
    'session/unsubscribe': ({ subscription }, { peer }) => {
      const mine = subscriptions.get(subscription);
      if (mine?.client !== peer)
        throw new HoldfastError('not_found', `There is no subscription ${subscription}`);
      mine.subscription.stop();
      subscriptions.delete(subscription);
      return {};
    },
    'session/verify': ({ session }) =>
      verifyHistory({ events, contents, checkpoints }, service.find(session).id),
    'history/cut': ({ session, ...request }, { signal }) =>
      historyCuts.cut(service.find(session), request, signal),
    'attachment/upload': ({ session, ...part }, { bytes }) =>
      files.receive(service.find(session).id, { ...part, bytes }),
    'content/read': ({ session, id, offset, limit }) => {
      const { part, total, mediaType } = contents.read(
        service.find(session).id,
        id,
        offset,
        limit ?? OUTPUT_BYTES,
      );
      return withBytes({ offset, total, mediaType }, part);
    },

    'turn/start': ({ session, profile, name, input, prompt, attachments, timeoutMs, opId }, { bytes }) =>
      service.startTurn({
        session,
        profile,
        name,
        attachments,
        timeoutMs,
        opId,
        input: inputBytes({ input, prompt }, bytes),
      }),
    'turn/edit': ({ turn, input, prompt, attachments, opId }, { bytes }) => ({
      turn: service.editTurn({ turn, opId, attachments, input: inputBytes({ input, prompt }, bytes) }),
    }),
    'turn/show': ({ turn }) => ({ turn: queue.view(queue.get(turn)) }),
    'turn/changes': async ({ turn }, { signal }) => {
      const until = performance.now() + PENDING_CHANGES_MS;
      const isPending = (): boolean => queue.get(turn).changes?.state === 'pending';
      for (let left: number = PENDING_CHANGES_MS; left > 0 && !signal.aborted && isPending();) {
        await changes.wait(turn, left, signal);
        left = until - performance.now();
      }
      return { changes: queue.get(turn).changes, ...turnPaths.get(turn) };
    },
    'turn/list': ({ session, limit }) => ({
      turns: turns
        .listBySession(service.find(session).id, limit ?? 100)
        .map((turn) => listed(queue.view(turn))),
    }),
    'turn/wait': async ({ turn, timeoutMs, seen }, { signal, progress }) => {
      const release = turnSnapshots.followProgress(turn, ({ stage, done, of, unit }) =>
        progress(stage, done ?? undefined, of ?? undefined, unit ?? undefined),
      );
      try {
        return { turn: queue.view(await queue.wait(turn, timeoutMs ?? DAY_MS, signal, seen)) };
      } finally {
        release();
      }
    },
    'turn/cancel': ({ turn }) => ({ turn: queue.view(queue.cancel(turn)) }),
    'turn/output': async ({ turn: turnId, stream, offset, limit, waitMs }, { signal }) => {
      const until = performance.now() + (waitMs ?? 0);
      for (;;) {
        const turn = queue.get(turnId);
        const total = { stdout: turn.stdoutBytes, stderr: turn.stderrBytes, result: turn.resultBytes }[
          stream
        ];
        const ended = ENDED_TURN_STATUSES.has(turn.status);
        const left = until - performance.now();
        if (total > offset || ended || left <= 0 || signal.aborted) {
          const bytes = output.read(turnId, stream, offset, limit ?? OUTPUT_BYTES);
          return withBytes({ offset, total, ended }, bytes);
        }
        await changes.wait(turnId, left, signal);
      }
    },

    'exec/start': async ({ session, command, tty, stdin, env, cwd }, { peer }) => {
      const row = service.find(session);
      const { execId, dispatched } = await execs.start(
        row.id,
        { command, tty: tty ?? null, stdin: stdin ?? false, env: env ?? {}, cwd: cwd ?? '/workspace' },
        execListener(peer),
      );
      return { exec: execId, sessionId: row.id, sandbox: dispatched };
    },
    'exec/input': async ({ exec, end }, { bytes }) => {
      await execs.input(exec, bytes, end ?? false);
      return {};
    },
    'exec/resize': async ({ exec, columns, rows }) => {
      await execs.resize(exec, columns, rows);
      return {};
    },
    'exec/kill': async ({ exec, signal }) => {
      await execs.kill(exec, signal ?? 'TERM');
      return {};
    },

    'workspace/info': ({ session }) => service.workspaceInfo(service.findOrDefault(session)),
    'workspace/wait': async ({ session }, { signal, progress }) => {
      const { id } = service.find(session);
      await service.waitUntilHydrated(id, {
        signal,
        onProgress: ({ stage, done, of, unit }) =>
          progress(stage, done ?? undefined, of ?? undefined, unit ?? undefined),
      });
      return { session: service.view(service.find(id)) };
    },
    'workspace/clean': ({ session, force, opId }) => service.clean(service.find(session), force, opId),
  };
}

/** Lists contain only small outputs, so that a list fits a message. `turn/show` returns the others. */
function listed(turn: Turn): Turn {
  const large = turn.output !== null && JSON.stringify(turn.output).length > LISTED_OUTPUT_CHARACTERS;
  const error =
    turn.error === null ? null : { message: turn.error.message, data: { code: turn.error.data.code } };
  return { ...turn, error, output: large ? null : turn.output };
}

function execListener(peer: Client): ExecListener {
  return {
    output: (exec, stream, bytes) => peer.notify('exec/output', { exec, stream }, bytes),
    exited: (exec, exitCode) => peer.notify('exec/exited', { exec, exitCode, signal: null }),
    disconnected: peer.closed,
  };
}

function inputBytes(
  { input, prompt }: Pick<Params<'turn/start'>, 'input' | 'prompt'>,
  bytes: Buffer,
): Buffer {
  const given = [input !== undefined, prompt !== undefined, bytes.byteLength > 0].filter(Boolean).length;
  if (given > 1) {
    throw new HoldfastError('invalid_params', 'A turn takes one input', {
      why: 'more than one of input, prompt and bytes was given',
    });
  }
  if (input !== undefined) return Buffer.from(JSON.stringify(input));
  return prompt === undefined ? bytes : Buffer.from(prompt);
}
