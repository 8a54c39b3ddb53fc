import '../validation-messages.ts';
import type { z } from 'zod';
import type { MethodShape } from '../methods.ts';
import type { HoldfastError } from '../errors.ts';

/** Name of a method → its shape, as METHODS. */
export type MethodMap = Readonly<Record<string, MethodShape>>;

export interface NotificationShape {
  readonly params: z.ZodType;
  readonly bytes?: 'params';
}
/** Name of a notification → its shape, as NOTIFICATIONS. `progress` and `cancel` belong to the peer and need not be listed. */
export type NotificationMap = Readonly<Record<string, NotificationShape>>;

/** For a side that serves, calls or notifies nothing. */
export type EmptyMap = Readonly<Record<string, never>>;
export const EMPTY_MAP: EmptyMap = {};

export type RequestId = string | number;

/** How far a request has come, as its caller hears it. `of` is null when the end is not known. */
export interface Progress {
  readonly stage: string;
  readonly done: number | null;
  readonly of: number | null;
  readonly unit: string | null;
}

/** A result with raw bytes behind it. */
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

/** `onTaken` is called when the connection needs the bytes no longer; until then they must stay as they are. */
export function withBytes<R>(result: R, bytes: Uint8Array, onTaken?: () => void): WithBytes<R> {
  return new WithBytes(result, bytes, onTaken);
}

/** Whether raw bytes may ride behind the request. */
export function acceptsBytes({ bytes }: MethodShape): boolean {
  return bytes === 'params' || bytes === 'both';
}

/** What a handler knows beyond its params. */
export interface HandlerContext<P = unknown> {
  readonly id: RequestId;
  /** Raw bytes behind the request; empty where none came. They are the handler's, to keep or to let go. */
  readonly bytes: Buffer;
  /** Lets go of the bytes, which are empty from then on: their memory is used again. Nobody may be reading them any more. */
  readonly releaseBytes: () => void;
  /** Aborts when the caller cancels or the connection ends; its reason is a HoldfastError. */
  readonly signal: AbortSignal;
  /** Tells the caller how far it is. Lossy: left out while the connection is busy. */
  readonly progress: (stage: string, done?: number, of?: number, unit?: string) => void;
  /** The connection the request came on. */
  readonly peer: P;
}

type Answer<S extends MethodShape> = S extends { readonly bytes: 'result' | 'both' }
  ? z.input<S['result']> | WithBytes<z.input<S['result']>>
  : z.input<S['result']>;

export type Handler<S extends MethodShape, P = unknown> = (
  params: z.output<S['params']>,
  context: HandlerContext<P>,
) => Answer<S> | Promise<Answer<S>>;

/** Exactly one handler per method: a missing one does not compile. */
export type Handlers<M extends MethodMap, P = unknown> = { readonly [K in keyof M]: Handler<M[K], P> };

/** An answer and the raw bytes behind it; empty where none came. They are the caller's, to keep or to let go. */
export interface CallResult<R> {
  readonly result: R;
  readonly bytes: Buffer;
  /** Lets go of the bytes, which are empty from then on: their memory is used again. Nobody may be reading them any more. */
  readonly release: () => void;
}

export interface CallOptions {
  /** Raw bytes behind the request, for methods that declare `bytes: 'params'`. */
  readonly bytes?: Uint8Array | undefined;
  /** Called when the connection needs `bytes` no longer; until then they must stay as they are. Perhaps never, where the call fails. */
  readonly onBytesFlushed?: (() => void) | undefined;
  /** Aborting cancels the call on both sides; it rejects at once with `cancelled`. */
  readonly signal?: AbortSignal | undefined;
  /** After this many ms the call is cancelled and rejects with `timeout`. No limit by default. */
  readonly timeoutMs?: number | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/** An error of a kind that must not reach the other side, for the log of this one. */
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

/** The first few places where a value is not what its schema says: `tags.3: too long; limit: expected number`. */
export function formatIssues(error: z.ZodError): string {
  const said = error.issues.slice(0, 3).map((issue) => {
    const path = issue.path.map(String).join('.');
    return path === '' ? issue.message : `${path}: ${issue.message}`;
  });
  const rest = error.issues.length - said.length;
  return said.join('; ') + (rest > 0 ? `; and ${rest} more` : '');
}
