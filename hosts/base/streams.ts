import http2 from 'node:http2';
import type { ClientHttp2Session, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';
import { errorFromWire } from '../../protocol/error-data.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { FrameMeter } from './frame-meter.ts';

/**
 * Many streams over one, by HTTP/2: each has its own credit, so that one that nobody reads stops only itself, and frames
 * have 16 KiB, so that a keystroke does not wait behind a file.
 */
const STREAM_WINDOW = 4 * 1024 * 1024;
/** All streams together are limited by their own windows. */
const SESSION_WINDOW = 2 ** 31 - 1;
const MAX_STREAMS = 100;
const MAX_ERROR_BYTES = 64 * 1024;
/** For the answer to a request. The far end itself gives a supervisor 15 s to start. */
const ANSWER_MS = 60_000;
const SESSION_OPTIONS = {
  maxSessionMemory: 1000,
  maxHeaderListPairs: 32,
  settings: { enablePush: false, initialWindowSize: STREAM_WINDOW, maxConcurrentStreams: MAX_STREAMS },
} as const;

/** What a client asks the other machine for. */
export type FarPath = '/supervisor' | '/images/missing' | '/images/load' | '/images/build';

/** The near end: opens streams. */
export class StreamClient {
  readonly closed: Promise<void>;
  readonly #session: ClientHttp2Session;
  readonly #host: string;
  readonly #answerMs: number;
  /** Whether a request was ever answered. */
  #isAnswered = false;
  #flood: HoldfastError | undefined;

  /** `host`: the other machine, for messages. */
  constructor(stream: Duplex, host: string, { answerMs = ANSWER_MS } = {}) {
    this.#host = host;
    this.#answerMs = answerMs;
    this.#session = http2.connect('http://holdfast.invalid', {
      ...SESSION_OPTIONS,
      createConnection: () => stream,
    });
    this.#session.on('error', () => this.#session.destroy());
    // The other side never opens streams.
    this.#session.on('stream', (pushed) => pushed.close());
    this.#session.once('connect', () => this.#session.setLocalWindowSize(SESSION_WINDOW));
    this.closed = new Promise((resolve) => this.#session.once('close', () => resolve()));
    const meter = new FrameMeter(performance.now());
    stream.on('data', (chunk: Buffer) => {
      if (this.#flood !== undefined || meter.accept(chunk, performance.now())) return;
      this.#flood = flooded(host);
      this.#session.destroy();
      stream.destroy();
    });
  }

  /** Why the connection was ended here: the other machine floods it. */
  get flood(): HoldfastError | undefined {
    return this.#flood;
  }

  /** Undefined: there is nothing to connect to. Errors: what the other side says, `connection_closed`, `timeout`. */
  async open(path: FarPath, headers: Readonly<Record<string, string>> = {}): Promise<Duplex | undefined> {
    const { promise: silence, reject } = Promise.withResolvers<never>();
    const over = new AbortController();
    const timer = setTimeout(() => {
      reject(silent(this.#host, this.#answerMs));
      over.abort();
      // The next command logs in again.
      if (!this.#isAnswered) this.#session.destroy();
    }, this.#answerMs);
    try {
      const stream = await Promise.race([this.#request(path, headers, over.signal), silence]);
      this.#isAnswered = true;
      return stream;
    } finally {
      clearTimeout(timer);
    }
  }

  #request(
    path: FarPath,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Duplex | undefined> {
    return new Promise((resolve, reject) => {
      if (this.#session.closed || this.#session.destroyed) {
        reject(this.#flood ?? lost());
        return;
      }
      const stream = this.#session.request({ ...headers, ':method': 'POST', ':path': path });
      const onAbort = (): void => stream.close();
      signal.addEventListener('abort', onAbort, { once: true });
      const onClose = (): void => reject(this.#flood ?? lost());
      stream.on('error', (cause) => reject(this.#flood ?? lost(cause)));
      stream.once('close', onClose);
      stream.once('response', (response) => {
        // A refusal may be over before its reason has been read.
        stream.off('close', onClose);
        const status = response[':status'];
        if (status === 200) {
          resolve(stream);
          return;
        }
        void readError(stream, status).then((error) => {
          stream.close();
          if (error === undefined) resolve(undefined);
          else reject(error);
        });
      });
    });
  }

  close(): void {
    this.#session.destroy();
  }
}

/** What the far end does for a path. The first chunk is read only after it has resolved. Undefined: there is nothing. */
export type FarService = (headers: Readonly<Record<string, string>>) => Promise<FarAnswer | undefined>;

export interface FarAnswer {
  /** Connects the stream with what answers. Resolves when both directions have ended. */
  serve(stream: Duplex): Promise<void>;
}

/** The far end. Resolves when the connection has ended. */
export async function serveStreams(
  stream: Duplex,
  services: Readonly<Record<FarPath, FarService>>,
): Promise<void> {
  const session: ServerHttp2Session = http2.performServerHandshake(stream, SESSION_OPTIONS);
  session.setLocalWindowSize(SESSION_WINDOW);
  session.on('error', () => session.destroy());
  session.on('stream', (incoming: ServerHttp2Stream, headers) => {
    incoming.on('error', () => incoming.destroy());
    const path = headers[':path'];
    const service = isFarPath(path, services) ? services[path] : undefined;
    const start = headers['start'];
    void answer(incoming, service, typeof start === 'string' ? { start } : {});
  });
  await new Promise<void>((resolve) => session.once('close', () => resolve()));
}

async function answer(
  stream: ServerHttp2Stream,
  service: FarService | undefined,
  headers: Readonly<Record<string, string>>,
): Promise<void> {
  try {
    if (service === undefined)
      throw new HoldfastError('not_supported', 'This host does not know the request');
    const found = await service(headers);
    if (stream.destroyed) return;
    if (found === undefined) {
      stream.respond({ ':status': 404 }, { endStream: true });
      return;
    }
    stream.respond({ ':status': 200 });
    await found.serve(stream);
  } catch (cause) {
    if (stream.destroyed) return;
    if (stream.headersSent) {
      stream.destroy();
      return;
    }
    const error = HoldfastError.from(cause);
    stream.respond({ ':status': 500 });
    stream.end(JSON.stringify({ message: error.message, data: error.toData() }).slice(0, MAX_ERROR_BYTES));
  }
}

function isFarPath(path: unknown, services: Readonly<Record<FarPath, FarService>>): path is FarPath {
  return typeof path === 'string' && Object.hasOwn(services, path);
}

async function readError(stream: Duplex, status: number | undefined): Promise<HoldfastError | undefined> {
  if (status === 404) return undefined;
  let text = '';
  try {
    for await (const chunk of stream) {
      text += String(chunk);
      if (text.length > MAX_ERROR_BYTES) break;
    }
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === 'object' && parsed !== null && 'message' in parsed && 'data' in parsed)
      return errorFromWire(String(parsed.message), parsed.data);
  } catch {
    // Not an error of ours.
  }
  return new HoldfastError('protocol_error', 'The other machine gave an answer that cannot be read');
}

function silent(host: string, ms: number): HoldfastError {
  return new HoldfastError('timeout', `${host} does not answer`, {
    why: `the login worked, and Holdfast there answered nothing within ${Math.ceil(ms / 1000)} s`,
    next: 'try again; if it goes on, log in there and look what keeps it busy',
  });
}

function flooded(host: string): HoldfastError {
  return new HoldfastError('protocol_error', `${host} floods the connection`, {
    why: 'it sends frames without content, faster than Holdfast ever does, so the connection was ended',
    next: 'ask whoever runs that machine; other hosts are not affected',
  });
}

function lost(cause?: unknown): HoldfastError {
  return new HoldfastError('connection_closed', 'The connection to the other machine ended', { cause });
}
