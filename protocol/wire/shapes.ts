import '../validation-messages.ts';
import type { z } from 'zod';
import type { MethodShape } from '../methods.ts';
import type { HoldfastError } from '../errors.ts';

/** Shapes by method name, such as METHODS. */
export type MethodMap = Readonly<Record<string, MethodShape>>;

export interface NotificationShape {
  readonly params: z.ZodType;
  readonly bytes?: 'params';
}
/** Shapes by notification name, such as NOTIFICATIONS. Every peer adds `progress` and `cancel`. */
export type NotificationMap = Readonly<Record<string, NotificationShape>>;

/** For a side without methods or notifications. */
export type EmptyMap = Readonly<Record<string, never>>;
export const EMPTY_MAP: EmptyMap = {};

export type RequestId = string | number;

/** The progress of a request. `of` is null if the total is unknown. */
export interface Progress {
  readonly stage: string;
  readonly done: number | null;
  readonly of: number | null;
  readonly unit: string | null;
}

/** A result with a raw payload. */
export class WithBytes<R> {
  readonly result: R;
  readonly bytes: Uint8Array;
  readonly onFlushed: (() => void) | undefined;
  constructor(result: R, bytes: Uint8Array, onFlushed: (() => void) | undefined) {
    this.result = result;
    this.bytes = bytes;
    this.onFlushed = onFlushed;
  }
}

/** `onFlushed` is called when the connection no longer needs the bytes. They must not change until then. */
export function withBytes<R>(result: R, bytes: Uint8Array, onFlushed?: () => void): WithBytes<R> {
  return new WithBytes(result, bytes, onFlushed);
}

/** Whether the request may carry a payload. */
export function acceptsBytes({ bytes }: MethodShape): boolean {
  return bytes === 'params' || bytes === 'both';
}

/** What a handler gets in addition to its params. */
export interface HandlerContext<P = unknown> {
  readonly id: RequestId;
  /** The payload of the request, or empty. The handler owns it and may release it. */
  readonly bytes: Buffer;
  /** Releases the payload for reuse. It becomes empty, so nothing may still be reading it. */
  readonly releaseBytes: () => void;
  /** Aborts when the caller cancels or the connection ends; its reason is a HoldfastError. */
  readonly signal: AbortSignal;
  /** Sends progress to the caller. Dropped while the connection is busy. */
  readonly progress: (stage: string, done?: number, of?: number, unit?: string) => void;
  /** The connection the request came on. */
  readonly peer: P;
}

type HandlerResult<S extends MethodShape> = S extends { readonly bytes: 'result' | 'both' }
  ? z.input<S['result']> | WithBytes<z.input<S['result']>>
  : z.input<S['result']>;

export type Handler<S extends MethodShape, P = unknown> = (
  params: z.output<S['params']>,
  context: HandlerContext<P>,
) => HandlerResult<S> | Promise<HandlerResult<S>>;

/** Exactly one handler per method: a missing one does not compile. */
export type Handlers<M extends MethodMap, P = unknown> = { readonly [K in keyof M]: Handler<M[K], P> };

/** A result and its payload, which may be empty. The caller owns the payload and may release it. */
export interface CallResult<R> {
  readonly result: R;
  readonly bytes: Buffer;
  /** Releases the payload for reuse. It becomes empty, so nothing may still be reading it. */
  readonly release: () => void;
}

export interface CallOptions {
  /** The payload of the request, for methods that declare `bytes: 'params'`. */
  readonly bytes?: Uint8Array | undefined;
  /** Called when the connection no longer needs `bytes`, which must not change until then. May not be called if the call fails. */
  readonly onBytesFlushed?: (() => void) | undefined;
  /** Aborting cancels the call on both sides. It rejects at once with `cancelled`. */
  readonly signal?: AbortSignal | undefined;
  /** Aborting asks the other side to end early. The call goes on until it answers: with a result if that was too late. */
  readonly cancel?: AbortSignal | undefined;
  /** The call is cancelled and rejects with `timeout` after this many ms. Default: no limit. */
  readonly timeoutMs?: number | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/** Receives errors that must only be logged and not be sent to the other side. */
export type InternalErrorListener = (
  error: unknown,
  where: { readonly method: string; readonly name: string },
) => void;

/** A JSON-RPC error object. */
export interface WireError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

export function toWireError(error: HoldfastError): WireError {
  return { code: error.rpcCode, message: error.message, data: error.toData() };
}

/** The first few validation errors: `tags.3: too long; limit: expected number`. */
export function formatIssues(error: z.ZodError): string {
  const messages = error.issues.slice(0, 3).map((issue) => {
    const path = issue.path.map(String).join('.');
    return path === '' ? issue.message : `${path}: ${issue.message}`;
  });
  const rest = error.issues.length - messages.length;
  return messages.join('; ') + (rest > 0 ? `; and ${rest} more` : '');
}
