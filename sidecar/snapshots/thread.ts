// Runs scans and restores in a thread of their own, so that other calls do not wait.
import { constants, openSync } from 'node:fs';
import { join } from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';
import { errorFromWire } from '../../protocol/error-data.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Hash } from '../../snapshot-format/objects.ts';
import type { StateScope } from '../../snapshot-format/sidecar-calls.ts';
import { Directory } from '../files/directory.ts';
import { O_PATH } from '../files/resolver.ts';
import { restoreWorkspaceAccess } from '../files/workspace-access.ts';
import { IN_SANDBOX } from '../wire.ts';
import { inHome, StateFilter } from '../home/state-filter.ts';
import { PUT_BYTES } from './upload-buffers.ts';
import type { RemoteStore, TaskRuntime } from './store.ts';
import { loadSystemCalls } from './system-calls.ts';
import { CANCELLED, SHUTTING_DOWN } from './thread-messages.ts';
import type {
  FromThread,
  StoreAnswer,
  StoreRequest,
  Task,
  TaskKind,
  TaskResult,
  ThreadOptions,
  ToThread,
} from './thread-messages.ts';
import { snapshotsUnsupported, WorkspaceSnapshots } from './workspace-snapshots.ts';

/** O_PATH, because the workspace's mode may deny reading. */
const ROOT_FLAGS = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;

const port = parentPort;
if (port === null) throw new Error('this is a thread of the sidecar');
const { workspace, home, control } = workerData as ThreadOptions;

const waiting = new Map<number, PromiseWithResolvers<StoreAnswer>>();
let calls = 0;
/**
 * Starts before the first task: modes that an earlier sidecar changed are restored at once, and no task waits. If it
 * fails, the first task reports the error.
 */
const native = loadSystemCalls();
let snapshots: Promise<WorkspaceSnapshots> | undefined = open();
snapshots.catch(() => (snapshots = undefined));

port.on('message', (message: ToThread) => {
  switch (message.kind) {
    case 'task':
      void perform(message.task, message.cancelled);
      break;
    case 'answer':
      takeCall(message.id)?.resolve(message.answer);
      break;
    case 'refusal':
      takeCall(message.id)?.reject(errorFromWire(message.failure.message, message.failure.data));
      break;
  }
});

function takeCall(id: number): PromiseWithResolvers<StoreAnswer> | undefined {
  const call = waiting.get(id);
  waiting.delete(id);
  return call;
}

function post(message: FromThread): void {
  port?.postMessage(message);
}

/** The other thread reads the bytes in place, so they must not change until the answer. */
function call(request: StoreRequest, bytes: Uint8Array): Promise<StoreAnswer> {
  calls += 1;
  const answer = Promise.withResolvers<StoreAnswer>();
  waiting.set(calls, answer);
  post({ kind: 'call', id: calls, request, bytes });
  return answer.promise;
}

/** Shared memory for uploads in flight. */
const sharedBuffers: Uint8Array[] = [];

async function put(pack: number, offset: number, bytes: Buffer): Promise<void> {
  const shared = sharedBuffers.pop() ?? new Uint8Array(new SharedArrayBuffer(PUT_BYTES));
  shared.set(bytes);
  try {
    await call({ method: 'put', pack, offset }, shared.subarray(0, bytes.length));
  } finally {
    sharedBuffers.push(shared);
  }
}

const store: RemoteStore = {
  async have(hashes) {
    const { bytes } = await call({ method: 'have', count: hashes.length }, joined(hashes));
    if (bytes.length !== Math.ceil(hashes.length / 8)) {
      throw new HoldfastError('protocol_error', 'The store answered about another number of objects');
    }
    return (index) => (((bytes[index >> 3] ?? 0) >> (index & 7)) & 1) === 1;
  },
  put,
  async sealed(pack, bytes, objects) {
    await call({ method: 'sealed', pack, bytes, objects }, EMPTY);
  },
  async read(hashes) {
    const { frames, bytes } = await call({ method: 'read', count: hashes.length }, joined(hashes));
    return { frames, bytes: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength) };
  },
  async readCache(offset) {
    const { bytes } = await call({ method: 'cache-read', offset }, EMPTY);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  },
  async putCache(offset, bytes) {
    await call({ method: 'cache-put', offset }, bytes);
  },
  async sealCache(bytes) {
    await call({ method: 'cache-sealed', bytes }, EMPTY);
  },
};
const EMPTY = Buffer.alloc(0);

function joined(hashes: readonly Hash[]): Buffer {
  return Buffer.concat(hashes);
}

async function perform(task: Task, cancelled: Int32Array): Promise<void> {
  const work: TaskRuntime = {
    store,
    check: () => {
      const why = Atomics.load(cancelled, 0);
      if (why === CANCELLED) throw new HoldfastError('cancelled', 'The request was cancelled');
      if (why === SHUTTING_DOWN) {
        throw new HoldfastError('connection_closed', 'The workspace was not scanned', {
          why: 'its sidecar is stopping',
        });
      }
    },
    progress: (stage, done, of) => post({ kind: 'progress', stage, done, of }),
  };
  try {
    const result = await resultOf(task, work);
    post({ kind: 'done', result });
  } catch (error) {
    if (!(error instanceof HoldfastError)) console.error('snapshots:', error);
    const typed = HoldfastError.from(error, 'The workspace could not be scanned');
    post({ kind: 'failed', failure: { message: typed.message, data: typed.toData() } });
  }
}

async function resultOf(task: Task, work: TaskRuntime): Promise<TaskResult<TaskKind>> {
  if (task.kind !== 'save-scan-cache' && task.params.state !== null) {
    const state = await openState(task.params.state);
    return await inHome<TaskResult<TaskKind>>(() =>
      task.kind === 'scan' ? state.scan(task.params, work) : state.restore(task.params, work),
    );
  }
  restoreWorkspaceAccess(workspace);
  snapshots ??= open();
  const here = await snapshots;
  switch (task.kind) {
    case 'scan':
      return await here.scan(task.params, work);
    case 'restore':
      return await here.restore(task.params, work);
    case 'save-scan-cache':
      return { isSaved: await here.saveCache(work) };
  }
}

async function open(): Promise<WorkspaceSnapshots> {
  const system = await native;
  if (system === null) throw snapshotsUnsupported();
  const root = Directory.fromFd(openSync(workspace, ROOT_FLAGS));
  return await WorkspaceSnapshots.open({ system, root, control });
}

/** The scans of HOME, and the scope that they are for. */
let state: { readonly scope: string; readonly snapshots: WorkspaceSnapshots } | undefined;

/** Another scope has nothing in common with the cached state. */
async function openState(scope: StateScope): Promise<WorkspaceSnapshots> {
  const key = JSON.stringify(scope);
  if (state?.scope === key) return state.snapshots;
  state?.snapshots[Symbol.dispose]();
  state = undefined;
  const system = await native;
  if (system === null) throw snapshotsUnsupported();
  const root = Directory.fromFd(openSync(home, ROOT_FLAGS));
  const filter = new StateFilter(scope);
  const opened = await WorkspaceSnapshots.open({
    system,
    root,
    control: join(control, IN_SANDBOX.homeRecordsName),
    filter,
  });
  state = { scope: key, snapshots: opened };
  return opened;
}
