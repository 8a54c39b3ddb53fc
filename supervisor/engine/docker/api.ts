import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { Stream } from 'node:stream';
import DockerModem from 'docker-modem';
import type { HoldfastError } from '../../../protocol/errors.ts';
import { EngineRefusal, engineTimedOut, engineUnavailable } from './errors.ts';
import { TerseAgent } from './terse-agent.ts';

export interface ApiCall {
  /** What the call is for, as the beginning of an error: "Cannot start the sandbox of ses-…". */
  readonly what: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Without version and query: `/containers/json`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean>>;
  readonly body?: object;
  /** Until the response has arrived: all of it for `json`, its headers for the others. */
  readonly timeoutMs: number;
  /** Further statuses that count as success: 304 for "already started". */
  readonly acceptedStatuses?: readonly number[];
  readonly signal?: AbortSignal | undefined;
  readonly auth?: Readonly<Record<string, string>> | undefined;
}

/**
 * The part of docker-modem that we use: its HTTP client, hijacking and error parsing. The rest of dockerode is not
 * loaded.
 */
interface Modem {
  version: string | undefined;
  dial(request: object, callback: (error: unknown, answer: unknown) => void): void;
}

/** Called when a call fails because the engine is unreachable (`gone`) or does not answer in time (`late`). */
export type OnUnavailable = (error: HoldfastError, how: 'gone' | 'late') => void;

/**
 * One engine's API over its unix socket. Errors: `engine_unavailable` when it cannot be reached, `EngineRefusal` when
 * it answers with an error status. Each call has its own connection: a kept one would fail the first call after an
 * engine restart.
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
      // Otherwise the modem takes host and port from DOCKER_HOST, and they override the path.
      host: undefined,
      port: undefined,
      protocol: 'http',
      agent: new TerseAgent({ keepAlive: false }),
    });
    this.#modem = modem as Modem;
  }

  /** `1.41`; null before the version is negotiated. */
  useVersion(version: string | null): void {
    this.#modem.version = version === null ? undefined : `v${version}`;
  }

  /** The parsed JSON body, or a Buffer if the body is not JSON. */
  json(call: ApiCall): Promise<unknown> {
    return this.#dial(call, {}, (answer) => answer);
  }

  /** The body as a stream. The caller ends it with `destroy`. */
  stream(call: ApiCall): Promise<IncomingMessage> {
    return this.#dial(call, { isStream: true }, (answer) => answer as IncomingMessage, destroyStream);
  }

  /**
   * The raw connection, in both directions. Requires a body, because without one the headers are never sent.
   * Half-closing it signals end of input to the process.
   */
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
        // A reader sees the stream break. Until there is one, an error must not end the process.
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
