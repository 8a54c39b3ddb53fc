import { JSONRPCServer } from 'json-rpc-2.0';
import type { JSONRPCResponse } from 'json-rpc-2.0';
import { HoldfastError } from '../errors.ts';
import type { MethodShape } from '../methods.ts';
import { encodeFrame } from './framing.ts';
import type { EncodedFrame, Frame } from './framing.ts';
import type { PeerLimits } from './limits.ts';
import { formatIssues, acceptsBytes, toWireError, WithBytes } from './shapes.ts';
import type { HandlerContext, InternalErrorListener, MethodMap, Progress, RequestId } from './shapes.ts';

/** What requests need from their connection. */
export interface RequestConnection<P> {
  readonly peer: P;
  /** For logs. */
  readonly name: string;
  readonly write: (frame: EncodedFrame) => void;
  readonly sendProgress: (id: RequestId, progress: Progress) => void;
  /** Bytes that the other side has not read yet. */
  readonly queued: () => number;
  /** Releases the payload of a request. */
  readonly release: (bytes: Buffer) => void;
  readonly onInternalError: InternalErrorListener;
}

export interface ServedMethod<P> {
  readonly shape: MethodShape;
  readonly handle: (params: unknown, context: HandlerContext<P>) => unknown;
}

/** The method that must succeed first on a connection, and the methods that are allowed before it. */
export interface Handshake {
  readonly method: string;
  readonly allowedBefore: readonly string[];
}

interface Running {
  readonly controller: AbortController;
  readonly size: number;
}

interface Request {
  readonly id: RequestId;
  readonly payload: Buffer | undefined;
  readonly controller: AbortController;
  responseBytes: Uint8Array | undefined;
  onResponseFlushed: (() => void) | undefined;
}

const EMPTY = Buffer.alloc(0);
/** Responses up to this size are always sent: the number of requests bounds them. */
const SMALL_RESPONSE_BYTES = 4096;

/** Serves requests of the other side. json-rpc-2.0 finds the method and builds the response; checks and limits are ours. */
export class IncomingRequests<P> {
  readonly #connection: RequestConnection<P>;
  readonly #limits: PeerLimits;
  readonly #rpc: JSONRPCServer<Request>;
  readonly #running = new Map<RequestId, Running>();
  /** Until this method has succeeded, only it and the allowed ones are served. */
  readonly #handshake: Handshake | undefined;
  #isHandshakeDone = false;
  #runningBytes = 0;
  #closed = false;

  constructor(
    connection: RequestConnection<P>,
    methods: ReadonlyMap<string, ServedMethod<P>>,
    limits: PeerLimits,
    opening: Handshake | undefined,
  ) {
    this.#connection = connection;
    this.#limits = limits;
    this.#handshake = opening;
    // By default it would log to the console, and send the text of any error to the other side.
    this.#rpc = new JSONRPCServer<Request>({ errorListener: () => undefined });
    this.#rpc.mapErrorToJSONRPCErrorResponse = (id, error: unknown) => ({
      jsonrpc: '2.0',
      id,
      error: toWireError(HoldfastError.from(error)),
    });
    for (const [name, method] of methods) {
      this.#rpc.addMethod(name, (params: unknown, request) => this.#run(name, method, params, request));
    }
  }

  get size(): number {
    return this.#running.size;
  }

  has(id: RequestId): boolean {
    return this.#running.has(id);
  }

  /** The caller has checked `id` and `method`. Never throws. */
  receive(id: RequestId, method: string, params: unknown, frame: Frame): void {
    const refusal = this.#refusal(method, frame.size);
    if (refusal !== undefined) {
      this.#answer({ jsonrpc: '2.0', id, error: toWireError(refusal) });
      return;
    }
    const controller = new AbortController();
    this.#running.set(id, { controller, size: frame.size });
    this.#runningBytes += frame.size;
    const request: Request = {
      id,
      payload: frame.bytes,
      controller,
      responseBytes: undefined,
      onResponseFlushed: undefined,
    };
    void this.#serve(request, method, params, frame.size);
  }

  cancel(id: RequestId): void {
    this.#running.get(id)?.controller.abort(new HoldfastError('cancelled', 'The request was cancelled'));
  }

  /** Aborts every running handler. No more responses are sent. */
  close(reason: HoldfastError): void {
    this.#closed = true;
    const running = [...this.#running.values()];
    this.#running.clear();
    for (const { controller } of running) controller.abort(reason);
  }

  /** Responds to all running requests with `error`, aborts their handlers and drops the handlers' own results. */
  answerAll(error: HoldfastError): void {
    for (const [id, { controller }] of this.#running) {
      this.#answer({ jsonrpc: '2.0', id, error: toWireError(error) });
      controller.abort(error);
    }
    this.#running.clear();
    this.#closed = true;
  }

  #refusal(method: string, size: number): HoldfastError | undefined {
    if (!this.#rpc.hasMethod(method)) {
      return new HoldfastError(
        'method_not_found',
        `There is no method ${JSON.stringify(method.slice(0, 100))}`,
      );
    }
    if (!this.#mayRun(method)) {
      return new HoldfastError('invalid_request', `${method} was not run`, {
        why: `the connection has not called ${this.#handshake?.method ?? ''} yet`,
        next: `call ${this.#handshake?.method ?? ''} first`,
      });
    }
    const why =
      this.#running.size >= this.#limits.incomingRequests
        ? `${String(this.#limits.incomingRequests)} requests of this connection run already`
        : this.#runningBytes + size > this.#limits.incomingBytes
          ? `the running requests of this connection hold ${String(this.#limits.incomingBytes)} bytes already`
          : undefined;
    if (why === undefined) return undefined;
    return new HoldfastError('overloaded', `${method} was not run`, { why, next: 'wait for some of them' });
  }

  #mayRun(method: string): boolean {
    if (this.#handshake === undefined || this.#isHandshakeDone) return true;
    return method === this.#handshake.method || this.#handshake.allowedBefore.includes(method);
  }

  async #serve(request: Request, method: string, params: unknown, size: number): Promise<void> {
    const { id } = request;
    const response = await this.#rpc.receive({ jsonrpc: '2.0', id, method, params }, request);
    this.#runningBytes -= size;
    // The request was removed if the connection has ended or `answerAll` has responded.
    if (this.#closed || !this.#running.delete(id) || response === null) {
      request.onResponseFlushed?.();
      return;
    }
    if (method === this.#handshake?.method && response.error === undefined) this.#isHandshakeDone = true;
    this.#answer(response, request.responseBytes, request.onResponseFlushed);
  }

  async #run(name: string, method: ServedMethod<P>, params: unknown, request: Request): Promise<unknown> {
    const checked = method.shape.params.safeParse(params ?? {});
    if (!checked.success) {
      throw new HoldfastError('invalid_params', `${name} was not run`, { why: formatIssues(checked.error) });
    }
    if (request.payload !== undefined && !acceptsBytes(method.shape)) {
      throw new HoldfastError('invalid_params', `${name} was not run`, { why: 'it takes no raw bytes' });
    }
    const { id, controller } = request;
    const context: HandlerContext<P> = {
      id,
      bytes: request.payload ?? EMPTY,
      releaseBytes: () => {
        if (request.payload !== undefined) this.#connection.release(request.payload);
      },
      signal: controller.signal,
      peer: this.#connection.peer,
      progress: (stage, done, of, unit) => {
        if (!this.#running.has(id)) return;
        this.#connection.sendProgress(id, { stage, done: done ?? null, of: of ?? null, unit: unit ?? null });
      },
    };
    try {
      const answer = await method.handle(checked.data, context);
      if (!(answer instanceof WithBytes)) return answer ?? null;
      request.responseBytes = answer.bytes;
      request.onResponseFlushed = answer.onFlushed;
      return answer.result;
    } catch (error) {
      throw this.#publicError(name, error, controller.signal);
    }
  }

  /** The error that the caller gets: ours unchanged; of all others it only learns that there was one. */
  #publicError(method: string, error: unknown, signal: AbortSignal): HoldfastError {
    if (error instanceof HoldfastError && error.code !== 'internal') return error;
    if (signal.aborted && !(error instanceof HoldfastError)) return HoldfastError.from(signal.reason);
    this.#connection.onInternalError(error, { method, name: this.#connection.name });
    return new HoldfastError('internal', `${method} failed`, {
      why: 'an unexpected internal error occurred',
      next: 'see the log of the supervisor (`holdfast supervisor logs`)',
    });
  }

  #answer(response: JSONRPCResponse, bytes?: Uint8Array, onFlushed?: () => void): void {
    const { id } = response;
    if (id === null) return;
    let frame: EncodedFrame;
    try {
      frame = encodeFrame({ ...response }, bytes, onFlushed);
    } catch (error) {
      this.#connection.onInternalError(error, { method: 'answer', name: this.#connection.name });
      frame = encodeFrame({ jsonrpc: '2.0', id, error: toWireError(unsendable(error)) });
      onFlushed?.();
    }
    if (frame.size > SMALL_RESPONSE_BYTES && this.#connection.queued() > this.#limits.unreadPayloads) {
      const error = new HoldfastError('overloaded', 'The response was dropped', {
        why: 'responses are requested faster than they are read',
        next: 'read them, then ask again',
      });
      frame = encodeFrame({ jsonrpc: '2.0', id, error: toWireError(error) });
      onFlushed?.();
    }
    this.#connection.write(frame);
  }
}

function unsendable(error: unknown): HoldfastError {
  const why = error instanceof HoldfastError ? error.why : undefined;
  return new HoldfastError('internal', 'The response cannot be sent', { why });
}

/** Returns a Map and not an object, because `constructor` and `__proto__` are valid names. */
export function bindHandlers<P>(
  serves: MethodMap,
  handlers: Readonly<Record<string, unknown>>,
): ReadonlyMap<string, ServedMethod<P>> {
  const served = new Map<string, ServedMethod<P>>();
  for (const [name, shape] of Object.entries(serves)) {
    const handler = Object.hasOwn(handlers, name) ? handlers[name] : undefined;
    if (typeof handler === 'function')
      served.set(name, { shape, handle: handler as ServedMethod<P>['handle'] });
  }
  return served;
}
