import type { ClientRequest, IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { ExchangeAnswer } from '../../../egress-proxy/wire.ts';
import type { Credential } from '../../../protocol/credentials.ts';
import type { MessageChannel } from '../../../protocol/wire/message-channel.ts';
import { DialError } from '../dial.ts';
import { answerHead } from './answer-head.ts';
import type { ByteSearch } from './byte-search.ts';
import { EchoGuard } from './echo-guard.ts';
import type { EndpointRefusal, EndpointReport } from './endpoint.ts';
import { bodyLength, credentialHeaders, credentialPath, type RequestHead } from './request-head.ts';
import type { Upstream } from './upstream.ts';

const HEAD_BYTES = 64 * 1024;
/** Nothing has moved for so long that nothing will. */
const SILENT_MS = 3600_000;

export interface ExchangeOptions {
  readonly head: RequestHead;
  /** Has the body of the request, and takes the answer. */
  readonly channel: MessageChannel;
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
  /** Tells of an answer that is given instead of the server's. */
  readonly onRefused: (refusal: EndpointRefusal) => void;
  /** Resets the client's connection: what it has of the answer must not look complete. */
  readonly cut: () => void;
  /** Called when the body is not what the head says: whoever sends it was taken over. */
  readonly distrust: () => void;
  /** Runs a reaction to an event: an error of it ends this exchange only. */
  readonly guard: (act: () => void) => void;
}

/** One request with a credential and its answer. It is sent at most once. */
export class Exchange {
  readonly #options: ExchangeOptions;
  readonly #method: string;
  /** Bytes that the body still has; null if its end says so. */
  #bodyLeft: number | null;
  #hasWholeRequest = false;
  #hasAnswered = false;
  /** Something of an answer is on its way. */
  #hasBegun = false;
  #bytesOut = 0;
  #bytesIn = 0;
  #ended = false;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    this.#method = options.head.method;
    this.#bodyLeft = bodyLength(options.head);
  }

  start(): void {
    const { head, channel, credential, value, agent, report, guard } = this.#options;
    const headers = credentialHeaders(head, credential, value);
    if (headers === null) {
      const why = 'its secret has characters that cannot be sent; set it again without line breaks';
      this.#answerWith({ status: 401, reason: 'no_secret', why });
      return;
    }
    report('allowed', { method: this.#method });
    const onward = httpsRequest({
      agent,
      host: credential.host,
      port: credential.port,
      method: this.#method,
      path: credentialPath(head.path, credential.as, value),
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
    channel.once('close', () => {
      if (!this.#hasAnswered || !this.#hasWholeRequest) onward.destroy();
      this.#end();
    });
    channel.on('data', (chunk: Buffer) =>
      guard(() => {
        this.#bytesOut += chunk.length;
        if (this.#bodyLeft !== null) this.#bodyLeft -= chunk.length;
        if (this.#bodyLeft !== null && this.#bodyLeft < 0) this.#distrust(onward);
        else if (!this.#options.pass(chunk.length)) this.#exhausted(onward);
        else if (!onward.destroyed && !onward.write(chunk)) channel.pause();
      }),
    );
    onward.on('drain', () => channel.resume());
    channel.on('end', () =>
      guard(() => {
        if ((this.#bodyLeft ?? 0) > 0) this.#distrust(onward);
        else this.#endRequest(onward);
      }),
    );
    if (this.#bodyLeft === 0) this.#endRequest(onward);
  }

  #endRequest(onward: ClientRequest): void {
    if (this.#hasWholeRequest) return;
    this.#hasWholeRequest = true;
    onward.end();
  }

  /** Reports the bytes that have passed since the last report. */
  reportCarried(): void {
    if (this.#ended || this.#bytesIn + this.#bytesOut === 0) return;
    this.#options.report('carried', this.#takeBytes());
  }

  #answer(onward: ClientRequest, answer: IncomingMessage): void {
    const { channel, search, guard } = this.#options;
    const head = answerHead(answer, search);
    if ('refused' in head) {
      onward.destroy();
      this.#refuse(head.refused, `the server's answer is withheld: ${head.why}`);
      return;
    }
    const { status, phrase, headers } = head;
    this.#hasBegun = true;
    channel.send({ answer: 'head', status, phrase, headers } satisfies ExchangeAnswer);
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
        else if (safe.length > 0 && !channel.write(safe)) answer.pause();
      }),
    );
    channel.on('drain', () => answer.resume());
    answer.on('end', () =>
      guard(() => {
        // Trailers are not passed on.
        if (!answer.complete) {
          this.#options.cut();
          return;
        }
        this.#hasAnswered = true;
        channel.end(watch.end());
      }),
    );
    answer.on('error', () => this.#options.cut());
    answer.on('close', () => {
      if (!answer.complete) this.#options.cut();
    });
  }

  #failed(error: Error): void {
    if (this.#ended || this.#hasAnswered) return;
    if (error instanceof DialError)
      this.#refuse(error.reason, `the host of this credential: ${error.message}`);
    else this.#refuse('not_reached', `the server did not answer as it should (${codeOf(error)})`);
  }

  #refuse(reason: EndpointRefusal['reason'], why: string): void {
    if (this.#hasBegun) {
      this.#options.cut();
      return;
    }
    this.#answerWith({
      status: reason === 'denied' || reason === 'private_address' ? 403 : 502,
      reason,
      why,
    });
  }

  /** Instead of the server. */
  #answerWith(refusal: EndpointRefusal): void {
    const { channel, onRefused } = this.#options;
    this.#hasBegun = true;
    onRefused(refusal);
    channel.send({ answer: 'refused', ...refusal } satisfies ExchangeAnswer);
    channel.end();
    // The rest of the request is discarded.
    channel.resume();
  }

  #distrust(onward: ClientRequest): void {
    onward.destroy();
    this.#options.distrust();
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
