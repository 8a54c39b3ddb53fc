import type { Duplex } from 'node:stream';
import { z } from 'zod';
import { errorFromWire } from '../error-data.ts';
import { HoldfastError } from '../errors.ts';
import { encodeFrame, FrameDecoder } from './framing.ts';
import type { EncodedFrame, Frame } from './framing.ts';
import { FrameWriter } from './frame-writer.ts';
import { FrameQueue } from './frame-queue.ts';
import { IncomingNotifications } from './incoming-notifications.ts';
import { IncomingRequests, bindHandlers } from './incoming-requests.ts';
import { PEER_LIMITS } from './limits.ts';
import type { PeerLimits } from './limits.ts';
import { OutgoingCalls } from './outgoing-calls.ts';
import { PEER_NOTIFICATIONS } from './peer-notifications.ts';
import type { PeerOptions } from './peer-options.ts';
import { readChunks } from './read-buffer.ts';
import { formatIssues, toWireError } from './shapes.ts';
import type {
  CallResult,
  CallOptions,
  InternalErrorListener,
  MethodMap,
  EmptyMap,
  NotificationMap,
  Progress,
  RequestId,
} from './shapes.ts';

const WireErrorSchema = z.object({ message: z.string(), data: z.unknown() });
const MAX_ID_LENGTH = 100;

/**
 * One end of a connection: JSON-RPC 2.0 over our framing. Both ends may call methods and send notifications. Every
 * incoming message is validated by its schema, and every buffer is bounded. The peer ends with its stream.
 */
export class Peer<
  Serves extends MethodMap,
  Calls extends MethodMap,
  Out extends NotificationMap = EmptyMap,
  In extends NotificationMap = EmptyMap,
> {
  /** Resolves when the connection has ended: with undefined after an orderly end by either side. Never rejects. */
  readonly closed: Promise<HoldfastError | undefined>;
  readonly name: string;
  readonly #stream: Duplex;
  readonly #calls: Calls;
  readonly #out: Out;
  readonly #limits: PeerLimits;
  readonly #writer: FrameWriter;
  readonly #decoder: FrameDecoder;
  readonly #outgoing: OutgoingCalls;
  readonly #incoming: IncomingRequests<this>;
  readonly #notifications: IncomingNotifications;
  readonly #frameQueue: FrameQueue;
  #unreadResponses = 0;
  /** How many callers of `pauseReading` have not resumed. */
  #readingPauses = 0;
  #ended = false;
  #isNewer = false;
  #closing: { readonly reason: HoldfastError | undefined; linger: NodeJS.Timeout | undefined } | undefined;
  readonly #stopReading: () => void;
  readonly #resolveClosed: (reason: HoldfastError | undefined) => void;

  constructor(options: PeerOptions<Serves, Calls, Out, In>) {
    const { stream, name, limits, handshake, bufferPool } = options;
    this.name = name;
    this.#stream = stream;
    this.#calls = options.calls;
    this.#out = options.sends;
    this.#limits = { ...PEER_LIMITS, ...limits };
    const onInternalError: InternalErrorListener = options.onInternalError ?? (() => undefined);
    this.#notifications = new IncomingNotifications(options.receives, {
      onListenerError: (error, method) => onInternalError(error, { method, name }),
      isNewer: () => this.#isNewer,
    });
    const { promise, resolve } = Promise.withResolvers<HoldfastError | undefined>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    this.#writer = new FrameWriter(stream);
    this.#decoder = new FrameDecoder((frame) => this.#frameQueue.accept(frame), bufferPool);
    this.#frameQueue = new FrameQueue({
      receive: (frame) => this.#receive(frame),
      mayStartRequest: () => this.#unreadResponses <= this.#limits.unreadResponses,
      onBacklogChange: () => this.#onBacklogChange(),
    });
    this.#outgoing = new OutgoingCalls(
      {
        name,
        update: options.update,
        isNewer: () => this.#isNewer,
        write: (frame) => this.#writer.write(frame),
        waitForDrain: () => this.#writer.waitForDrain(),
        sendCancel: (request) => this.#writer.write(encodeNotification('cancel', { request })),
        onViolation: (error) => this.close(error),
        release: (bytes) => bufferPool?.release(bytes),
      },
      this.#limits.outgoingCalls,
    );
    this.#incoming = new IncomingRequests<this>(
      {
        peer: this,
        name,
        write: (frame) => this.#writeResponse(frame),
        sendProgress: (request, progress) => this.#sendProgress(request, progress),
        queued: () => this.#writer.queued,
        release: (bytes) => bufferPool?.release(bytes),
        onInternalError,
      },
      bindHandlers<this>(options.serves, options.handlers),
      this.#limits,
      handshake,
    );
    this.#stopReading = readChunks(stream, this.#onData);
    stream.on('end', this.#onEnd);
    stream.on('error', this.#onError);
    stream.on('close', this.#onClose);
  }

  /** Calls a method of the other side. Rejects with the other side's error, or `connection_closed`, `cancelled`, `timeout`. */
  async call<M extends keyof Calls & string>(
    method: M,
    params: z.input<Calls[M]['params']>,
    options: CallOptions = {},
  ): Promise<z.output<Calls[M]['result']>> {
    return (await this.callWithBytes(method, params, options)).result;
  }

  /** As `call`, with the payload of the response. */
  async callWithBytes<M extends keyof Calls & string>(
    method: M,
    params: z.input<Calls[M]['params']>,
    options: CallOptions = {},
  ): Promise<CallResult<z.output<Calls[M]['result']>>> {
    const shape: Calls[M] = this.#calls[method];
    return this.#outgoing.call(method, shape, params, options) as Promise<
      CallResult<z.output<Calls[M]['result']>>
    >;
  }

  /**
   * Sends a notification. Resolves when the connection accepts more; rejects with `connection_closed`. A sender that does
   * not await it can exceed the limit, which closes the connection.
   */
  async notify<N extends keyof Out & string>(
    name: N,
    params: z.input<Out[N]['params']>,
    bytes?: Uint8Array,
  ): Promise<void> {
    if (this.#closing !== undefined) throw this.#connectionClosed();
    const shape: Out[N] = this.#out[name];
    const checked = shape.params.safeParse(params);
    if (!checked.success) {
      throw new HoldfastError('invalid_params', `${name} was not sent`, {
        why: formatIssues(checked.error),
      });
    }
    if (bytes !== undefined && shape.bytes !== 'params') {
      throw new HoldfastError('invalid_params', `${name} was not sent`, { why: 'it takes no raw bytes' });
    }
    const frame = encodeNotification(name, params, bytes);
    if (this.#writer.queued + frame.size > this.#limits.unreadNotifications) {
      const why = `${this.name} does not read its messages`;
      this.close(
        new HoldfastError('overloaded', 'The connection was closed', { why, next: 'connect again' }),
      );
      throw this.#connectionClosed();
    }
    this.#writer.write(frame);
    await this.#writer.waitForDrain();
  }

  /**
   * Calls the listener in order of arrival, after the callers of earlier responses have continued. Returns the function
   * that removes the listener.
   */
  onNotification<N extends keyof In & string>(
    name: N,
    listener: (params: z.output<In[N]['params']>, bytes: Buffer) => void,
  ): () => void {
    return this.#notifications.add(name, (params, bytes) =>
      listener(params as z.output<In[N]['params']>, bytes),
    );
  }

  /**
   * For a listener that cannot keep up: stops reading until the returned function is called, so that the other side waits.
   * What was read before (at most one chunk) is still delivered. Responses are delayed too.
   */
  pauseReading(): () => void {
    this.#readingPauses += 1;
    this.#updateReading();
    let isPaused = true;
    return () => {
      if (!isPaused) return;
      isPaused = false;
      this.#readingPauses -= 1;
      this.#updateReading();
    };
  }

  /** From now on the other side may send values that only a newer version knows (`newer-values.ts`). */
  acceptNewer(): void {
    this.#isNewer = true;
  }

  /** Number of requests of the other side that are running. */
  get runningRequests(): number {
    return this.#incoming.size;
  }

  /** Number of our calls that wait for a response. */
  get pendingCalls(): number {
    return this.#outgoing.size;
  }

  /** Bytes that the other side has not read yet. */
  get queuedBytes(): number {
    return this.#writer.queued;
  }

  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  /**
   * Ends the connection: rejects pending calls and aborts running handlers. A reason is sent to the other side and is the
   * response to its pending requests. What was written before is still sent, within the linger time.
   */
  close(reason?: HoldfastError): void {
    if (this.#closing !== undefined) return;
    if (reason !== undefined) {
      this.#incoming.answerAll(reason);
      this.#writer.write(encodeFrame({ jsonrpc: '2.0', id: null, error: toWireError(reason) }));
    }
    this.#finish(reason);
  }

  /**
   * Detaches from the stream and returns it, paused, for another protocol. The caller must handle its errors from now on.
   * Errors: `connection_closed`; `protocol_error` if the other side has already sent more messages.
   */
  detachStream(): Duplex {
    if (this.#closing !== undefined) throw this.#connectionClosed();
    if (!this.#frameQueue.isEmpty || this.#decoder.buffered > 0) {
      const error = new HoldfastError('protocol_error', 'The connection was closed', {
        why: 'more data follows the last message',
      });
      this.close(error);
      throw error;
    }
    this.#stream.pause();
    this.#stopReading();
    this.#stream.off('end', this.#onEnd);
    this.#stream.off('error', this.#onError);
    this.#stream.off('close', this.#onClose);
    this.#closing = { reason: undefined, linger: undefined };
    this.#frameQueue.close();
    this.#decoder.stop();
    const error = this.#connectionClosed();
    this.#outgoing.close(error);
    this.#incoming.close(error);
    this.#writer.close(error);
    this.#resolveClosed(undefined);
    return this.#stream;
  }

  #finish(reason: HoldfastError | undefined): void {
    if (this.#closing !== undefined) return;
    this.#closing = { reason, linger: undefined };
    this.#frameQueue.close();
    this.#decoder.stop();
    const error = this.#connectionClosed();
    this.#outgoing.close(error);
    this.#incoming.close(error);
    this.#writer.close(error);
    if (this.#stream.destroyed) {
      this.#onClose();
      return;
    }
    // Discard what still arrives: with unread data the system would reset the connection and drop our final messages.
    this.#stream.resume();
    this.#closing.linger = setTimeout(() => this.#stream.destroy(), this.#limits.lingerMs);
    // After a reason, wait until the other side closes: closing while it still writes would make it miss the reason.
    this.#stream.end(() => {
      if (reason === undefined || this.#ended) this.#stream.destroy();
    });
  }

  #connectionClosed(): HoldfastError {
    const reason = this.#closing?.reason;
    if (reason?.code === 'connection_closed') return reason;
    return new HoldfastError('connection_closed', `The connection with ${this.name} has ended`, {
      why: reason?.sentence,
      next: reason?.next,
      cause: reason,
    });
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#closing !== undefined) return;
    try {
      this.#decoder.push(chunk);
    } catch (error) {
      // Deliver the complete frames before the invalid one.
      this.#frameQueue.flush();
      this.close(HoldfastError.from(error));
    }
  };

  readonly #onEnd = (): void => {
    this.#ended = true;
    if (this.#closing !== undefined) {
      if (this.#stream.writableFinished) this.#stream.destroy();
      return;
    }
    if (this.#frameQueue.isEmpty) this.#finishEnded();
  };

  #onBacklogChange(): void {
    if (this.#ended && this.#frameQueue.isEmpty) this.#finishEnded();
    else this.#updateReading();
  }

  /**
   * Reads only while earlier frames have been delivered. If the other side does not read its responses, only its next
   * request stops the reading, so that responses to our calls still arrive. Otherwise two slow sides would deadlock.
   */
  #updateReading(): void {
    if (this.#closing !== undefined) return;
    if (this.#readingPauses > 0 || !this.#frameQueue.isEmpty) this.#stream.pause();
    else if (this.#stream.isPaused()) this.#stream.resume();
  }

  #finishEnded(): void {
    try {
      this.#decoder.end();
    } catch (error) {
      this.close(HoldfastError.from(error));
      return;
    }
    this.#finish(undefined);
  }

  readonly #onError = (cause: Error): void => {
    this.#frameQueue.flush();
    this.#finish(
      new HoldfastError('connection_closed', `The connection with ${this.name} has ended`, {
        why: cause.message,
        cause,
      }),
    );
  };

  readonly #onClose = (): void => {
    if (this.#closing === undefined) {
      this.#frameQueue.flush();
      this.#finish(undefined);
      return;
    }
    clearTimeout(this.#closing.linger);
    this.#stopReading();
    this.#stream.off('end', this.#onEnd);
    this.#resolveClosed(this.#closing.reason);
  };

  #receive(frame: Frame): void {
    const { message } = frame;
    const { id, method } = message;
    if (message['jsonrpc'] !== '2.0') {
      this.#closeForViolation('a message is not JSON-RPC 2.0');
    } else if (typeof method === 'string') {
      if (id === undefined) this.#receiveNotification(method, message['params'], frame.bytes);
      else if (!isRequestId(id))
        this.#closeForViolation('the id of a request is neither a short string nor a whole number');
      else if (this.#incoming.has(id))
        this.#closeForViolation(`a request with the id ${JSON.stringify(id)} is already running`);
      else this.#incoming.receive(id, method, message['params'], frame);
    } else if (id === null && message['error'] !== undefined) {
      this.#receiveFatalError(message['error']);
    } else if (!isRequestId(id) || (message['error'] === undefined) === (message['result'] === undefined)) {
      this.#closeForViolation('a message is neither a request nor a response');
    } else if (!this.#outgoing.receive(id, frame)) {
      this.#closeForViolation(`there was no request with the id ${JSON.stringify(id)}`);
    }
  }

  #receiveNotification(name: string, params: unknown, bytes: Buffer | undefined): void {
    let violation: string | undefined;
    if (name === 'cancel') {
      const parsed = PEER_NOTIFICATIONS.cancel.params.safeParse(params);
      if (parsed.success) this.#incoming.cancel(parsed.data.request);
      else violation = `cancel: ${formatIssues(parsed.error)}`;
    } else if (name === 'progress') {
      const parsed = PEER_NOTIFICATIONS.progress.params.safeParse(params);
      if (parsed.success) {
        const { request, ...progress } = parsed.data;
        this.#notifications.guard(name, () => this.#outgoing.progress(request, progress));
      } else violation = `progress: ${formatIssues(parsed.error)}`;
    } else violation = this.#notifications.receive(name, params, bytes);
    if (violation !== undefined) this.#closeForViolation(violation);
  }

  /** The other side reports why it closes the connection. */
  #receiveFatalError(error: unknown): void {
    const parsed = WireErrorSchema.safeParse(error);
    this.#finish(
      parsed.success
        ? errorFromWire(parsed.data.message, parsed.data.data)
        : new HoldfastError('protocol_error', 'The other side closed the connection without a valid reason'),
    );
  }

  #closeForViolation(why: string): void {
    this.close(new HoldfastError('protocol_error', 'The connection was closed', { why }));
  }

  #writeResponse(frame: EncodedFrame): void {
    this.#unreadResponses += frame.size;
    this.#writer.write(frame, () => {
      this.#unreadResponses -= frame.size;
      if (this.#unreadResponses <= this.#limits.unreadResponses) this.#frameQueue.resume();
    });
  }

  #sendProgress(request: RequestId, progress: Progress): void {
    if (this.#writer.queued > this.#limits.unreadProgress) return;
    this.#writer.write(encodeNotification('progress', { request, ...progress }));
  }
}

function isRequestId(id: unknown): id is RequestId {
  return typeof id === 'string' ? id.length <= MAX_ID_LENGTH : Number.isSafeInteger(id);
}

function encodeNotification(method: string, params: unknown, bytes?: Uint8Array): EncodedFrame {
  return encodeFrame({ jsonrpc: '2.0', method, params }, bytes);
}
