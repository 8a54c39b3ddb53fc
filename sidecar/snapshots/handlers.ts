import type { SNAPSHOT_CALLS, STORE_CALLS } from '../../snapshot-format/sidecar-calls.ts';
import type { Peer } from '../../protocol/wire/peer.ts';
import type { HandlerContext, Handlers, MethodMap } from '../../protocol/wire/shapes.ts';
import type { SnapshotThread, TaskContext } from './thread-client.ts';
import type { StoreAnswer, StoreRequest } from './thread-messages.ts';

type Supervisor = Pick<Peer<MethodMap, typeof STORE_CALLS>, 'call' | 'callWithBytes'>;

const NOTHING = Buffer.alloc(0);

export function snapshotHandlers(thread: SnapshotThread): Handlers<typeof SNAPSHOT_CALLS, Supervisor> {
  return {
    'snapshot/scan': (params, context) => thread.run('scan', params, contextOf(context)),
    'snapshot/restore': (params, context) => thread.run('restore', params, contextOf(context)),
    'snapshot/save-scan-cache': async (params, context) => {
      if (params.isLast) await thread.shutDown();
      // It yields to any other task, because nobody waits for it.
      return thread.isIdle
        ? await thread.run('save-scan-cache', params, contextOf(context))
        : { isSaved: false };
    },
  };
}

function contextOf({ signal, progress, peer }: HandlerContext<Supervisor>): TaskContext {
  return {
    signal,
    progress: (stage, done, of) => progress(stage, done, of, 'files'),
    call: (request, bytes) => callStore(peer, request, bytes, signal),
  };
}

async function callStore(
  peer: Supervisor,
  request: StoreRequest,
  bytes: Buffer,
  signal: AbortSignal,
): Promise<StoreAnswer> {
  switch (request.method) {
    case 'have': {
      const hashes = request.count;
      const answer = await peer.callWithBytes('store/have', { hashes }, { bytes, signal });
      return { frames: [], bytes: answer.bytes };
    }
    case 'put': {
      const { pack, offset } = request;
      await peer.call('store/put', { pack, offset }, { bytes, signal });
      return { frames: [], bytes: NOTHING };
    }
    case 'sealed': {
      const { pack, bytes: length, objects } = request;
      await peer.call('store/seal', { pack, bytes: length, objects }, { signal });
      return { frames: [], bytes: NOTHING };
    }
    case 'read': {
      const hashes = request.count;
      const answer = await peer.callWithBytes('store/read', { hashes }, { bytes, signal });
      return { frames: answer.result.frames, bytes: answer.bytes };
    }
    case 'cache-read': {
      const { offset } = request;
      const answer = await peer.callWithBytes('cache/read', { offset }, { signal });
      return { frames: [], bytes: answer.bytes };
    }
    case 'cache-put': {
      const { offset } = request;
      await peer.call('cache/put', { offset }, { bytes, signal });
      return { frames: [], bytes: NOTHING };
    }
    case 'cache-sealed': {
      await peer.call('cache/seal', { bytes: request.bytes }, { signal });
      return { frames: [], bytes: NOTHING };
    }
  }
}
