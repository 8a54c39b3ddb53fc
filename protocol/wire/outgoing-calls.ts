import { JSONRPCClient } from 'json-rpc-2.0';
import type { JSONRPCResponse } from 'json-rpc-2.0';
import { z } from 'zod';
import { errorFromWire } from '../error-data.ts';
import { HoldfastError } from '../errors.ts';
import type { MethodShape } from '../methods.ts';
import { parseNewer } from '../newer-values.ts';
import { encodeFrame } from './framing.ts';
import type { EncodedFrame, Frame } from './framing.ts';
import { formatIssues, acceptsBytes, toWireError } from './shapes.ts';
import type { CallResult, CallOptions, Progress, RequestId } from './shapes.ts';

const WireErrorSchema = z.object({ code: z.number(), message: z.string(), data: z.unknown() });
const EMPTY = Buffer.alloc(0);

/** What calls need from their connection. */
export interface CallConnection {
  /** The other side, as errors name it. */
  readonly name: string;
  /** What a person does to get a newer one, in the imperative. */
  readonly update: string | undefined;
  /** Whether the other side is newer than this program. */
  readonly isNewer: () => boolean;
  readonly write: (frame: EncodedFrame) => void;
  /** Resolves when the connection accepts more. */
  readonly waitForDrain: () => Promise<void>;
  /** Tells the other side that the response is no longer needed. */
  readonly sendCancel: (id: RequestId) => void;
  /** Called when the other side violates the protocol, in addition to the error that the caller gets. */
  readonly onViolation: (error: HoldfastError) => void;
  /** Releases the payload of a response. */
  readonly release: (bytes: Buffer) => void;
}

interface Pending {
  readonly method: string;
  readonly onProgress: ((progress: Progress) => void) | undefined;
  readonly reject: (error: HoldfastError) => void;
  sent: boolean;
}

/** Our pending calls. json-rpc-2.0 matches responses to calls; checks and limits are ours. */
export class OutgoingCalls {
  readonly #connection: CallConnection;
  readonly #limit: number;
  readonly #rpc: JSONRPCClient<EncodedFrame>;
  readonly #pending = new Map<RequestId, Pending>();
  /** Payloads by response object, because json-rpc-2.0 passes the object through but knows no payloads. */
  readonly #payloads = new WeakMap<object, Buffer>();
  #nextId = 1;
  #closed: HoldfastError | undefined;

  constructor(connection: CallConnection, limit: number) {
    this.#connection = connection;
    this.#limit = limit;
    this.#rpc = new JSONRPCClient((_payload: unknown, frame) => this.#connection.write(frame));
  }

  get size(): number {
    return this.#pending.size;
  }

  async call(
    method: string,
    shape: MethodShape,
    params: unknown,
    options: CallOptions,
  ): Promise<CallResult<unknown>> {
    this.#check(method, shape, params, options);
    const id = this.#nextId++;
    const frame = encodeFrame({ jsonrpc: '2.0', id, method, params }, options.bytes, options.onBytesFlushed);
    const { promise: ended, reject } = Promise.withResolvers<never>();
    this.#pending.set(id, { method, onProgress: options.onProgress, reject, sent: false });
    const onAbort = (): void => this.#abandon(id, cancelled(method, options.signal));
    options.signal?.addEventListener('abort', onAbort, { once: true });
    const onCancel = (): void => {
      if (this.#pending.get(id)?.sent === true) this.#connection.sendCancel(id);
      else this.#abandon(id, cancelled(method, options.cancel));
    };
    options.cancel?.addEventListener('abort', onCancel, { once: true });
    const timer = this.#startTimer(id, method, options.timeoutMs);
    try {
      const response = await Promise.race([ended, this.#exchange(id, method, params, frame)]);
      return this.#open(method, shape, response);
    } finally {
      clearTimeout(timer);
      options.signal?.removeEventListener('abort', onAbort);
      options.cancel?.removeEventListener('abort', onCancel);
      this.#pending.delete(id);
    }
  }

  /** Whether the response belongs to one of our calls. Late responses are dropped. */
  receive(id: RequestId, frame: Frame): boolean {
    const known = typeof id === 'number' && id > 0 && id < this.#nextId;
    const { message } = frame;
    // Remove it now, so that an end of the connection right after the response does not reject the call.
    if (!this.#pending.delete(id)) return known;
    const error = message['error'];
    if (error === undefined) {
      this.#respond({ jsonrpc: '2.0', id, result: message['result'] }, frame.bytes);
      return true;
    }
    const parsed = WireErrorSchema.safeParse(error);
    this.#respond({
      jsonrpc: '2.0',
      id,
      error: parsed.success ? parsed.data : { code: 0, message: 'The other side sent an invalid error' },
    });
    return true;
  }

  progress(id: RequestId, progress: Progress): void {
    this.#pending.get(id)?.onProgress?.(progress);
  }

  /** Rejects all pending and future calls. */
  close(reason: HoldfastError): void {
    this.#closed ??= reason;
    for (const { method, reject } of this.#pending.values()) reject(closedBefore(method, reason));
    this.#pending.clear();
    this.#rpc.rejectAllPendingRequests(reason.message);
  }

  #check(method: string, shape: MethodShape, params: unknown, options: CallOptions): void {
    if (this.#closed !== undefined) throw closedBefore(method, this.#closed);
    for (const signal of [options.signal, options.cancel])
      if (signal?.aborted === true) throw cancelled(method, signal);
    if (this.#pending.size >= this.#limit) {
      throw new HoldfastError('overloaded', `${method} was not called`, {
        why: `${String(this.#limit)} calls on this connection are already pending`,
        next: 'wait for some of them to finish',
      });
    }
    const checked = shape.params.safeParse(params);
    if (!checked.success) {
      throw new HoldfastError('invalid_params', `${method} was not called`, {
        why: formatIssues(checked.error),
      });
    }
    if (options.bytes !== undefined && !acceptsBytes(shape)) {
      throw new HoldfastError('invalid_params', `${method} was not called`, { why: 'it takes no raw bytes' });
    }
  }

  async #exchange(
    id: number,
    method: string,
    params: unknown,
    frame: EncodedFrame,
  ): Promise<JSONRPCResponse> {
    await this.#connection.waitForDrain();
    const pending = this.#pending.get(id);
    // The call was abandoned meanwhile and must not be sent.
    if (pending === undefined) throw new HoldfastError('cancelled', `${method} was not sent`);
    pending.sent = true;
    return this.#rpc.requestAdvanced({ jsonrpc: '2.0', id, method, params }, frame);
  }

  #startTimer(id: number, method: string, timeoutMs: number | undefined): NodeJS.Timeout | undefined {
    if (timeoutMs === undefined) return undefined;
    return setTimeout(() => {
      const why = `no answer came from ${this.#connection.name} within ${String(timeoutMs)} ms`;
      this.#abandon(id, new HoldfastError('timeout', `${method} took too long`, { why }));
    }, timeoutMs);
  }

  #abandon(id: number, error: HoldfastError): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    pending.reject(error);
    if (!pending.sent) return;
    // json-rpc-2.0 forgets a call only when it gets a response.
    this.#rpc.receive({ jsonrpc: '2.0', id, error: toWireError(error) });
    this.#connection.sendCancel(id);
  }

  #respond(response: JSONRPCResponse, bytes?: Buffer): void {
    if (bytes !== undefined) this.#payloads.set(response, bytes);
    this.#rpc.receive(response);
  }

  #open(method: string, shape: MethodShape, response: JSONRPCResponse): CallResult<unknown> {
    if (response.error !== undefined)
      throw this.#explain(method, errorFromWire(response.error.message, response.error.data));
    const bytes = this.#payloads.get(response);
    const isNewer = this.#connection.isNewer();
    const result = (isNewer ? parseNewer : strictly)(shape.result, response.result);
    if (!result.success) {
      const why = formatIssues(result.error);
      throw isNewer ? this.#unreadable(method, why) : this.#reportViolation(method, why);
    }
    if (bytes !== undefined && shape.bytes !== 'result' && shape.bytes !== 'both')
      throw this.#reportViolation(method, 'it carries an unexpected payload');
    const release = (): void => {
      if (bytes !== undefined) this.#connection.release(bytes);
    };
    return { result: result.data, bytes: bytes ?? EMPTY, release };
  }

  /** All of our methods exist in this version: a side that has one of them not is older. */
  #explain(method: string, error: HoldfastError): HoldfastError {
    const { name, update } = this.#connection;
    if (error.code !== 'method_not_found' || update === undefined) return error;
    return new HoldfastError('method_not_found', `${name.replace(/^t/, 'T')} cannot do this yet`, {
      why: `it is older than this program and has no ${method}`,
      next: update,
      cause: error,
    });
  }

  /** Other answers of a newer side can be read: the connection goes on. */
  #unreadable(method: string, why: string): HoldfastError {
    const what = `The answer of ${this.#connection.name} to ${method} cannot be read`;
    return new HoldfastError('version_mismatch', what, {
      why: `it is newer than this program: ${why}`,
      next: 'update this program',
    });
  }

  #reportViolation(method: string, why: string): HoldfastError {
    const error = new HoldfastError('protocol_error', `The response to ${method} violates the protocol`, {
      why,
    });
    this.#connection.onViolation(error);
    return error;
  }
}

function strictly(schema: z.ZodType, value: unknown): z.ZodSafeParseResult<unknown> {
  return schema.safeParse(value);
}

function cancelled(method: string, signal: AbortSignal | undefined): HoldfastError {
  return new HoldfastError('cancelled', `${method} was cancelled`, { cause: signal?.reason });
}

function closedBefore(method: string, reason: HoldfastError): HoldfastError {
  return new HoldfastError('connection_closed', `${method} was not answered`, {
    why: reason.code === 'connection_closed' ? (reason.why ?? 'the connection ended') : reason.sentence,
    next: reason.next,
    cause: reason,
  });
}
