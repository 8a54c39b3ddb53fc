import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { Stream } from 'node:stream';
import DockerModem from 'docker-modem';
import type { HoldfastError } from '../../../protocol/errors.ts';
import { EngineRefusal, engineTimedOut, engineUnavailable } from './errors.ts';
import { TerseAgent } from './terse-agent.ts';

export interface ApiCall {
  /** What is asked, as the beginning of an error: "Cannot start the sandbox of ses-…". */
  readonly what: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Without version and query: `/containers/json`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean>>;
  readonly body?: object;
  /** Until the answer is there (whole for `json`, its head for the others). */
  readonly timeoutMs: number;
  /** Further statuses that are no refusal: 304 for "already started". */
  readonly acceptedStatuses?: readonly number[];
  readonly signal?: AbortSignal | undefined;
  readonly auth?: Readonly<Record<string, string>> | undefined;
}

/** What we use of it: it brings the HTTP client, hijacking and the reading of errors. The rest of dockerode is not loaded. */
interface Modem {
  version: string | undefined;
  dial(request: object, callback: (error: unknown, answer: unknown) => void): void;
}

/** Told of every call that the engine did not take, or to which no answer came in time: it may be gone, or busy. */
export type OnUnavailable = (error: HoldfastError, how: 'gone' | 'late') => void;

/**
 * One engine's API over its unix socket. Errors: `engine_unavailable` when it cannot be asked, `EngineRefusal` when it says no.
 * A connection per call: a kept one would fail the first call after the engine was restarted.
 */
export class DockerApi {
  readonly socketPath: string;
  readonly #modem: Modem;
  readonly #onUnavailable: OnUnavailable;

  constructor(socketPath: string, onUnavailable: OnUnavailable) {
    this.socketPath = socketPath;
    this.#onUnavailable = onUnavailable;
    const modem: unknown = new DockerModem({
      socketPath,
      // The modem would take host and port from DOCKER_HOST, and they would win over the path.
      host: undefined,
      port: undefined,
      protocol: 'http',
      agent: new TerseAgent({ keepAlive: false }),
    });
    this.#modem = modem as Modem;
  }

  /** `1.41`; null before it was negotiated. */
  useVersion(version: string | null): void {
    this.#modem.version = version === null ? undefined : `v${version}`;
  }

  /** The parsed JSON body, or a Buffer when it is none. */
  json(call: ApiCall): Promise<unknown> {
    return this.#dial(call, {}, (answer) => answer);
  }

  /** The body as it comes. The caller ends it by `destroy`. */
  stream(call: ApiCall): Promise<IncomingMessage> {
    return this.#dial(call, { isStream: true }, (answer) => answer as IncomingMessage, destroyStream);
  }

  /** The raw connection, both ways; needs a body, because without one the head is never sent. Half-closing it is end-of-input for the other side. */
  hijack(call: ApiCall): Promise<Socket> {
    const kind = { isStream: true, hijack: true };
    return this.#dial(call, kind, (answer) => answer as Socket, destroyStream);
  }

  #dial<T>(
    call: ApiCall,
    kind: object,
    read: (answer: unknown) => T,
    tooLate: (answer: unknown) => void = () => undefined,
  ): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const abort = new AbortController();
    let settled = call.signal?.aborted === true;
    if (settled) {
      reject(call.signal?.reason);
      return promise;
    }
    const fail = (error: unknown, lost: 'gone' | 'late' | null): void => {
      if (settled) return;
      settled = true;
      if (lost !== null) this.#onUnavailable(error as HoldfastError, lost);
      reject(error);
      abort.abort();
    };
    const timer = setTimeout(() => {
      fail(engineTimedOut(call.what, this.socketPath, call.timeoutMs), 'late');
    }, call.timeoutMs);
    const cancelled = (): void => fail(call.signal?.reason, null);
    call.signal?.addEventListener('abort', cancelled, { once: true });
    const cleared = promise.finally(() => {
      clearTimeout(timer);
      call.signal?.removeEventListener('abort', cancelled);
    });

    const fine = [200, 201, 202, 204, 101, ...(call.acceptedStatuses ?? [])];
    this.#modem.dial(
      {
        path: `${call.path}?`,
        method: call.method,
        options: { _query: call.query ?? {}, _body: call.body ?? {} },
        statusCodes: Object.fromEntries(fine.map((status) => [status, true])),
        abortSignal: abort.signal,
        ...(call.auth === undefined ? {} : { authconfig: call.auth }),
        ...kind,
      },
      (error, answer) => {
        const failed = error !== null && error !== undefined;
        if (settled) {
          if (!failed) tooLate(answer);
          return;
        }
        if (failed) {
          const refusal = refusalOf(call.what, error);
          fail(
            refusal ?? engineUnavailable(call.what, this.socketPath, error),
            refusal === null ? 'gone' : null,
          );
          return;
        }
        settled = true;
        // Whoever reads a stream sees it break; until somebody does, breaking must not end the process.
        if (answer instanceof Stream) answer.on('error', () => undefined);
        resolve(read(answer));
      },
    );
    return cleared;
  }
}

function destroyStream(answer: unknown): void {
  (answer as IncomingMessage | Socket).destroy();
}

function refusalOf(what: string, error: unknown): EngineRefusal | null {
  if (!(error instanceof Error) || !('statusCode' in error) || typeof error.statusCode !== 'number')
    return null;
  const body: unknown = 'json' in error ? error.json : undefined;
  const said =
    typeof body === 'object' && body !== null && 'message' in body && typeof body.message === 'string'
      ? body.message
      : error.message.replace(/^\(HTTP code \d+\) [^-]*- /, '');
  return new EngineRefusal(what, error.statusCode, said.trim());
}
