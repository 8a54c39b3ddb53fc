import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Credential } from '../../../protocol/credentials.ts';
import { DialError } from '../dial.ts';
import { answerHead } from './answer-head.ts';
import type { ByteSearch } from './byte-search.ts';
import { EchoGuard } from './echo-guard.ts';
import type { EndpointRefusal } from './endpoint-refusal.ts';
import type { EndpointReport } from './endpoint.ts';
import { credentialHeaders, credentialPath } from './request-head.ts';
import type { Upstream } from './upstream.ts';

const HEAD_BYTES = 64 * 1024;
/** Nothing has moved for so long that nothing will. */
const SILENT_MS = 3600_000;

export interface ExchangeOptions {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly credential: Credential;
  readonly value: Buffer;
  /** Finds the credential in the answer. */
  readonly search: ByteSearch;
  readonly agent: Upstream;
  /** Counts bytes; false if no more may pass. */
  readonly pass: (bytes: number) => boolean;
  readonly report: (
    decision: 'allowed' | 'denied' | 'failed' | 'carried' | 'ended',
    said: EndpointReport,
  ) => void;
  /** Answers instead of the server, if nothing has been answered yet. */
  readonly refuse: (refusal: EndpointRefusal) => void;
  /** Resets the client's connection: what it has of the answer must not look complete. */
  readonly cut: () => void;
  /** Runs a reaction to an event: an error of it ends this exchange only. */
  readonly guard: (act: () => void) => void;
}

/** One request with a credential and its answer. It is sent at most once. */
export class Exchange {
  readonly #options: ExchangeOptions;
  readonly #method: string;
  #bytesOut = 0;
  #bytesIn = 0;
  #ended = false;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    this.#method = options.request.method ?? '';
  }

  start(): void {
    const { request, response, credential, value, agent, report, refuse, guard } = this.#options;
    const headers = credentialHeaders(request, credential, value);
    if (headers === null) {
      const why = 'its secret has characters that cannot be sent; set it again without line breaks';
      refuse({ status: 401, reason: 'no_secret', why });
      return;
    }
    report('allowed', { method: this.#method });
    const onward = httpsRequest({
      agent,
      host: credential.host,
      port: credential.port,
      method: this.#method,
      path: credentialPath(request.url ?? '/', credential.as, value),
      headers,
      setHost: false,
      maxHeaderSize: HEAD_BYTES,
      insecureHTTPParser: false,
    });
    // As for requests: a bound of Node's would drop headers in silence.
    onward.maxHeadersCount = 0;
    onward.setTimeout(SILENT_MS, () => onward.destroy());
    onward.on('error', (error) => guard(() => this.#failed(error)));
    onward.on('upgrade', (_answer, socket) =>
      guard(() => {
        socket.destroy();
        this.#refuse('unsafe_answer', 'the server changed the protocol, which was not asked for');
      }),
    );
    onward.on('response', (answer) => guard(() => this.#answer(onward, answer)));
    response.once('close', () => {
      if (!response.writableFinished) onward.destroy();
      this.#end();
    });
    request.on('error', () => onward.destroy());
    request.on('aborted', () => onward.destroy());
    request.on('data', (chunk: Buffer) => {
      this.#bytesOut += chunk.length;
      if (!this.#options.pass(chunk.length)) this.#exhausted(onward);
    });
    if (request.headers.expect !== undefined) response.writeContinue();
    request.pipe(onward);
  }

  /** Tells the bytes that have passed since it was last told. */
  reportCarried(): void {
    if (this.#ended || this.#bytesIn + this.#bytesOut === 0) return;
    this.#options.report('carried', this.#takeBytes());
  }

  #answer(onward: ClientRequest, answer: IncomingMessage): void {
    const { response, search, guard } = this.#options;
    const head = answerHead(answer, search);
    if ('refused' in head) {
      onward.destroy();
      this.#refuse(head.refused, `the server's answer is withheld: ${head.why}`);
      return;
    }
    response.writeHead(head.status, head.phrase, head.headers);
    // An event stream begins long before its first event.
    response.flushHeaders();
    const watch = new EchoGuard(search);
    answer.on('data', (chunk: Buffer) =>
      guard(() => {
        this.#bytesIn += chunk.length;
        const safe = watch.push(chunk);
        if (safe === null) {
          this.#options.report('denied', { method: this.#method, reason: 'echo' });
          onward.destroy();
          this.#options.cut();
        } else if (!this.#options.pass(chunk.length)) this.#exhausted(onward);
        else if (safe.length > 0 && !response.write(safe)) answer.pause();
      }),
    );
    response.on('drain', () => answer.resume());
    answer.on('end', () =>
      guard(() => {
        // Trailers are not passed on.
        if (answer.complete) response.end(watch.end());
        else this.#options.cut();
      }),
    );
    answer.on('error', () => this.#options.cut());
    answer.on('close', () => {
      if (!answer.complete) this.#options.cut();
    });
  }

  #failed(error: Error): void {
    if (this.#ended) return;
    if (error instanceof DialError)
      this.#refuse(error.reason, `the host of this credential: ${error.message}`);
    else this.#refuse('not_reached', `the server did not answer as it should (${codeOf(error)})`);
  }

  #refuse(reason: EndpointRefusal['reason'], why: string): void {
    const { response, cut, refuse, request } = this.#options;
    if (response.headersSent) {
      cut();
      return;
    }
    request.unpipe();
    refuse({ status: reason === 'denied' || reason === 'private_address' ? 403 : 502, reason, why });
  }

  #exhausted(onward: ClientRequest): void {
    this.#options.report('denied', { method: this.#method, reason: 'limit' });
    onward.destroy();
    this.#options.cut();
  }

  #end(): void {
    if (this.#ended) return;
    this.#options.report('ended', this.#takeBytes());
    this.#ended = true;
  }

  #takeBytes(): EndpointReport {
    const said = { method: this.#method, bytesIn: this.#bytesIn, bytesOut: this.#bytesOut };
    this.#bytesIn = 0;
    this.#bytesOut = 0;
    return said;
  }
}

/** A code names no path of this machine; a message of an error may. */
function codeOf(error: Error): string {
  return 'code' in error ? String(error.code) : error.name;
}
