import type { z } from 'zod';
import type { ErrorData } from '../../protocol/errors.ts';
import type { SNAPSHOT_CALLS } from '../../snapshot-format/sidecar-calls.ts';
import type { FrameHeader } from './store.ts';

/** Data given to the thread at its start. */
export interface ThreadOptions {
  readonly workspace: string;
  /** The agent's HOME. */
  readonly home: string;
  /** The sidecar's own directory, which the agent cannot reach. */
  readonly control: string;
}

type Calls = typeof SNAPSHOT_CALLS;
export type TaskKind = 'scan' | 'restore' | 'save-scan-cache';
export type TaskParams<K extends TaskKind> = z.output<Calls[`snapshot/${K}`]['params']>;
export type TaskResult<K extends TaskKind> = z.input<Calls[`snapshot/${K}`]['result']>;

export type Task = {
  readonly [K in TaskKind]: { readonly kind: K; readonly params: TaskParams<K> };
}[TaskKind];

export type StoreRequest =
  | { readonly method: 'have'; readonly count: number }
  | { readonly method: 'put'; readonly pack: number; readonly offset: number }
  | { readonly method: 'sealed'; readonly pack: number; readonly bytes: number; readonly objects: number }
  | { readonly method: 'read'; readonly count: number }
  | { readonly method: 'cache-read'; readonly offset: number }
  | { readonly method: 'cache-put'; readonly offset: number }
  | { readonly method: 'cache-sealed'; readonly bytes: number };

export interface StoreAnswer {
  readonly frames: readonly FrameHeader[];
  readonly bytes: Uint8Array;
}

export interface SerializedError {
  readonly message: string;
  readonly data: ErrorData;
}

/** Values of a task's `cancelled[0]` that end it: the request was cancelled, or the sidecar is stopping. */
export const CANCELLED = 1;
export const SHUTTING_DOWN = 2;

/** To the thread. */
export type ToThread =
  /** `cancelled`: see CANCELLED. */
  | { readonly kind: 'task'; readonly task: Task; readonly cancelled: Int32Array }
  | { readonly kind: 'answer'; readonly id: number; readonly answer: StoreAnswer }
  | { readonly kind: 'refusal'; readonly id: number; readonly failure: SerializedError };

/** From the thread. */
export type FromThread =
  | { readonly kind: 'call'; readonly id: number; readonly request: StoreRequest; readonly bytes: Uint8Array }
  | {
      readonly kind: 'progress';
      readonly stage: string;
      readonly done: number;
      readonly of: number | undefined;
    }
  | { readonly kind: 'done'; readonly result: TaskResult<TaskKind> }
  | { readonly kind: 'failed'; readonly failure: SerializedError };
