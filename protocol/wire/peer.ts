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
import { readChunks } from './shared-buffer-socket.ts';
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
const LONGEST_ID = 100;

/**
 * One end of a connection: JSON-RPC 2.0 over our framing. Both ends may call and notify. Everything that arrives is parsed
 * by the schema of its method, and everything has a bound. It ends with its stream.
 */
export class Peer<
  Serves extends MethodMap,
  Calls extends MethodMap,
  Out extends NotificationMap = EmptyMap,
  In extends NotificationMap = EmptyMap,
> {
  /** Resolves when the connection has ended: undefined for an orderly end by either side. Never rejects. */
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
  readonly #inbox: FrameQueue;
  #unreadAnswers = 0;
  /** How many of our readers cannot keep up now. */
  #holds = 0;
  #ended = false;
  #closing: { readonly reason: HoldfastError | undefined; linger: NodeJS.Timeout | undefined } | undefined;
  readonly #stopTaking: () => void;
  readonly #resolveClosed: (reason: HoldfastError | undefined) => void;

  constructor(options: PeerOptions<Serves, Calls, Out, In>) {
    const { stream, name, limits, handshake, bufferPool } = options;
    this.name = name;
    this.#stream = stream;
    this.#calls = options.calls;
    this.#out = options.sends;
    this.#limits = { ...PEER_LIMITS, ...limits };
    const onInternalError: InternalErrorListener = options.onInternalError ?? (() => undefined);
    this.#notifications = new IncomingNotifications(options.receives, (error, method) =>
      onInternalError(error, { method, name }),
    );
    const { promise, resolve } = Promise.withResolvers<HoldfastError | undefined>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    this.#writer = new FrameWriter(stream);
    this.#decoder = new FrameDecoder((frame) => this.#inbox.accept(frame), bufferPool);
    this.#inbox = new FrameQueue({
      receive: (frame) => this.#receive(frame),
      mayStartRequest: () => this.#unreadAnswers <= this.#limits.unreadResponses,
      onBacklogChange: () => this.#onInboxChange(),
    });
    this.#outgoing = new OutgoingCalls(
      {
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
        write: (frame) => this.#writeAnswer(frame),
        sendProgress: (request, progress) => this.#sendProgress(request, progress),
        queued: () => this.#writer.queued,
        release: (bytes) => bufferPool?.release(bytes),
        onInternalError,
      },
      bindHandlers<this>(options.serves, options.handlers),
      this.#limits,
      handshake,
    );
    this.#stopTaking = readChunks(stream, this.#onData);
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

  /** As `call`, with the raw bytes behind the answer. */
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
   * Resolves when the system has taken it and would take more; rejects with `connection_closed`. Awaiting it is how a
   * sender keeps to the reader's pace; a sender that does not is cut off at the bound.
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
      const why = `${this.name} does not read what it is sent`;
      this.close(new HoldfastError('overloaded', 'The connection was ended', { why, next: 'connect again' }));
      throw this.#connectionClosed();
    }
    this.#writer.write(frame);
    await this.#writer.waitForDrain();
  }

  /**
   * The listener is called in the order of arrival, and after the caller of an earlier answer has gone on.
   * Returns the end of it.
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
   * For a listener that cannot keep up: nothing more is read until the returned function is called, so the other side
   * waits. What was read before (at most one piece of the stream) still comes; answers are held up too.
   */
  pauseReading(): () => void {
    this.#holds += 1;
    this.#pace();
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#holds -= 1;
      this.#pace();
    };
  }

  /** Requests of the other side that run here now. */
  get runningRequests(): number {
    return this.#incoming.size;
  }

  /** Calls of ours that wait for an answer. */
  get pendingCalls(): number {
    return this.#outgoing.size;
  }

  /** Bytes that wait for the other side to read them. */
  get queuedBytes(): number {
    return this.#writer.queued;
  }

  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  /**
   * Ends the connection. Waiting calls reject, running handlers are told to stop. With a reason the other side is told it,
   * and what it waits for is answered with it. What was written before still leaves, within the linger time.
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
   * Lets go of the stream, paused and otherwise as it is: from here on it speaks something else, and its errors are the caller's to
   * hear. The other side must not have said anything yet that follows what was answered last. Errors: `connection_closed`,
   * `protocol_error` where it has.
   */
  detachStream(): Duplex {
    if (this.#closing !== undefined) throw this.#connectionClosed();
    if (!this.#inbox.isEmpty || this.#decoder.buffered > 0) {
      const error = new HoldfastError('protocol_error', 'The connection was ended', {
        why: 'something follows the last message',
      });
      this.close(error);
      throw error;
    }
    this.#stream.pause();
    this.#stopTaking();
    this.#stream.off('end', this.#onEnd);
    this.#stream.off('error', this.#onError);
    this.#stream.off('close', this.#onClose);
    this.#closing = { reason: undefined, linger: undefined };
    this.#inbox.close();
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
    this.#inbox.close();
    this.#decoder.stop();
    const error = this.#connectionClosed();
    this.#outgoing.close(error);
    this.#incoming.close(error);
    this.#writer.close(error);
    if (this.#stream.destroyed) {
      this.#onClose();
      return;
    }
    // What still arrives is thrown away: an unread rest would make the system drop our last words.
    this.#stream.resume();
    this.#closing.linger = setTimeout(() => this.#stream.destroy(), this.#limits.lingerMs);
    // With last words the other side ends first: cutting it off while it still writes would make it miss them.
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
      // Frames before the broken one were whole and still count.
      this.#inbox.flush();
      this.close(HoldfastError.from(error));
    }
  };

  readonly #onEnd = (): void => {
    this.#ended = true;
    if (this.#closing !== undefined) {
      if (this.#stream.writableFinished) this.#stream.destroy();
      return;
    }
    if (this.#inbox.isEmpty) this.#finishEnded();
  };

  #onInboxChange(): void {
    if (this.#ended && this.#inbox.isEmpty) this.#finishEnded();
    else this.#pace();
  }

  /**
   * Reads on only while what was read is handled. A side that does not take its answers stops that by its next request alone,
   * so that what it says to calls of ours still arrives: two sides that both fall behind would else wait for each other.
   */
  #pace(): void {
    if (this.#closing !== undefined) return;
    if (this.#holds > 0 || !this.#inbox.isEmpty) this.#stream.pause();
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
    this.#inbox.flush();
    this.#finish(
      new HoldfastError('connection_closed', `The connection with ${this.name} has ended`, {
        why: cause.message,
        cause,
      }),
    );
  };

  readonly #onClose = (): void => {
    if (this.#closing === undefined) {
      this.#inbox.flush();
      this.#finish(undefined);
      return;
    }
    clearTimeout(this.#closing.linger);
    this.#stopTaking();
    this.#stream.off('end', this.#onEnd);
    this.#resolveClosed(this.#closing.reason);
  };

  #receive(frame: Frame): void {
    const { message } = frame;
    const { id, method } = message;
    if (message['jsonrpc'] !== '2.0') {
      this.#violated('a message is not JSON-RPC 2.0');
    } else if (typeof method === 'string') {
      if (id === undefined) this.#hear(method, message['params'], frame.bytes);
      else if (!isRequestId(id))
        this.#violated('the id of a request is neither a short string nor a whole number');
      else if (this.#incoming.has(id))
        this.#violated(`a request with the id ${JSON.stringify(id)} runs already`);
      else this.#incoming.receive(id, method, message['params'], frame);
    } else if (id === null && message['error'] !== undefined) {
      this.#hearComplaint(message['error']);
    } else if (!isRequestId(id) || (message['error'] === undefined) === (message['result'] === undefined)) {
      this.#violated('a message is neither a request nor an answer');
    } else if (!this.#outgoing.receive(id, frame)) {
      this.#violated(`nothing was asked with the id ${JSON.stringify(id)}`);
    }
  }

  #hear(name: string, params: unknown, bytes: Buffer | undefined): void {
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
    if (violation !== undefined) this.#violated(violation);
  }

  /** The other side says why it will end the connection. */
  #hearComplaint(error: unknown): void {
    const parsed = WireErrorSchema.safeParse(error);
    this.#finish(
      parsed.success
        ? errorFromWire(parsed.data.message, parsed.data.data)
        : new HoldfastError('protocol_error', 'The connection was ended by the other side without a reason'),
    );
  }

  #violated(why: string): void {
    this.close(new HoldfastError('protocol_error', 'The connection was ended', { why }));
  }

  #writeAnswer(frame: EncodedFrame): void {
    this.#unreadAnswers += frame.size;
    this.#writer.write(frame, () => {
      this.#unreadAnswers -= frame.size;
      if (this.#unreadAnswers <= this.#limits.unreadResponses) this.#inbox.resume();
    });
  }

  #sendProgress(request: RequestId, progress: Progress): void {
    if (this.#writer.queued > this.#limits.unreadProgress) return;
    this.#writer.write(encodeNotification('progress', { request, ...progress }));
  }
}

function isRequestId(id: unknown): id is RequestId {
  return typeof id === 'string' ? id.length <= LONGEST_ID : Number.isSafeInteger(id);
}

function encodeNotification(method: string, params: unknown, bytes?: Uint8Array): EncodedFrame {
  return encodeFrame({ jsonrpc: '2.0', method, params }, bytes);
}
