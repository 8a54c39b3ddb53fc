import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { PLACEHOLDER_MARK } from '../protocol/credential-presets.ts';
import type { MessageChannel } from '../protocol/wire/message-channel.ts';
import { forwardPlain } from './forward-plain.ts';
import { ACCESS_DENIED, openingProblem, readOpening } from './opening.ts';
import {
  type Refusal,
  connectRefusal,
  refusalHeaders,
  refusalStatus,
  refusalText,
  unreadableRefusal,
} from './refusal.ts';
import { type BadRequest, connectTarget, plainTarget, type Target, tunnelledTarget } from './request.ts';
import {
  type Answer,
  AnswerSchema,
  FINAL_RESPONSE_MS,
  HEAD_BYTES,
  HEAD_MS,
  type ProxyRequest,
} from './wire.ts';

/** A placeholder stands for a key, and whoever sends one elsewhere would have sent the key. */
const PLACEHOLDER: BadRequest = {
  bad: 'it has the placeholder of a credential, which is served on a port of its own',
};

const NESTED: BadRequest = { bad: 'it is a tunnel in a tunnel' };

/** State of one connection of a sandbox. */
interface Client {
  readonly channel: MessageChannel;
  readonly id: number;
  readonly session: string;
  headTimer: NodeJS.Timeout | undefined;
  /** It has sent its only request. */
  used: boolean;
  /** Where its tunnel leads, for a client that speaks plain HTTP in it: the parser serves it a second time. */
  tunnel: Target | null;
  /** Waits for the supervisor's answer. */
  answered: ((answer: Answer) => void) | null;
  /** The connection to its server, or whoever waits for it. */
  server: PromiseWithResolvers<MessageChannel | null>;
}

/**
 * The HTTP proxy of all sandboxes. Node's parser reads what they send; the supervisor decides whether and where it is
 * forwarded, and connects. One request per connection, so that no two programs can disagree about where the next one
 * begins.
 */
export class HttpProxy {
  readonly #server: Server;
  readonly #clients = new Map<Duplex, Client>();
  readonly #byId = new Map<number, Client>();

  constructor() {
    this.#server = createServer({
      maxHeaderSize: HEAD_BYTES,
      insecureHTTPParser: false,
      // We refuse it ourselves, so that it is reported like other refusals.
      requireHostHeader: false,
      joinDuplicateHeaders: false,
      keepAlive: false,
    });
    this.#server.maxRequestsPerSocket = 1;
    // Otherwise Node cuts off the response to a client that half-closes its connection.
    Reflect.set(this.#server, 'httpAllowHalfOpen', true);
    this.#server.on('connect', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
      const client = this.#clients.get(stream);
      if (client === undefined) stream.destroy();
      else guard(client, this.#connect(client, request, head));
    });
    const plain = (request: IncomingMessage, response: ServerResponse): void => {
      const client = this.#clients.get(request.socket);
      if (client === undefined) request.socket.destroy();
      else guard(client, this.#plain(client, request, response));
    };
    this.#server.on('request', plain);
    // Node would send 100 Continue before the decision.
    this.#server.on('checkContinue', plain);
    this.#server.on('checkExpectation', plain);
    this.#server.on('clientError', (error: Error & { code?: string }, stream: Duplex) => {
      const client = this.#clients.get(stream);
      if (client === undefined) stream.destroy();
      else if (!client.used) this.#unreadable(client, error.code);
      // What follows a request that is refused already does not matter.
      else if (client.answered !== null || client.server !== NO_SERVER) reset(client.channel);
    });
  }

  /** Serves a connection of a sandbox. */
  serve(channel: MessageChannel, id: number, session: string): void {
    const client: Client = {
      ...{ channel, id, session },
      headTimer: undefined,
      used: false,
      tunnel: null,
      answered: null,
      server: NO_SERVER,
    };
    this.#clients.set(channel, client);
    this.#byId.set(id, client);
    channel.on('error', () => channel.destroy());
    channel.on('message', (message: unknown) => {
      const answer = AnswerSchema.parse(message);
      client.answered?.(answer);
    });
    channel.once('close', () => {
      clearTimeout(client.headTimer);
      this.#clients.delete(channel);
      this.#byId.delete(id);
      client.answered?.({ answer: 'nobody' });
      client.server.resolve(null);
    });
    this.#parse(client);
  }

  /** The connection to the server that the client with this id has asked for. */
  takeServer(channel: MessageChannel, id: number): void {
    channel.on('error', () => channel.destroy());
    const client = this.#byId.get(id);
    if (client === undefined || client.server === NO_SERVER) channel.destroy();
    else client.server.resolve(channel);
  }

  /** Has the parser read the client's one request. */
  #parse(client: Client): void {
    client.used = false;
    client.headTimer = setTimeout(() => this.#unreadable(client, 'ERR_HTTP_REQUEST_TIMEOUT'), HEAD_MS);
    this.#server.emit('connection', client.channel);
    client.channel.resume();
  }

  async #connect(client: Client, request: IncomingMessage, head: Buffer): Promise<void> {
    const { channel, session } = client;
    const from = channel.consumedBytes - head.length;
    const refuse = (refusal: Refusal): void => this.#sendFinal(client, connectRefusal(refusal));
    if (!this.#first(client)) return;
    const target = client.tunnel === null ? connectTarget(request) : NESTED;
    if ('bad' in target) {
      refuse(bad(client, 'CONNECT', target));
      return;
    }
    const answer = await this.#ask(client, { say: 'dial', method: 'CONNECT', ...target });
    if (answer.answer === 'nobody') reset(channel);
    else if (answer.answer === 'refused') refuse({ ...answer, sessionId: session });
    else if (answer.tcp) channel.send({ say: 'carry', from } satisfies ProxyRequest);
    else await this.#open(client, target, answer, head, from);
  }

  /** Reads the client's first words in its tunnel. Nothing passes in either direction before they are found good. */
  async #open(
    client: Client,
    target: Target,
    carries: { readonly ech: boolean },
    head: Buffer,
    from: number,
  ): Promise<void> {
    const { channel } = client;
    const opening = await readOpening(channel, head);
    if (opening === null || channel.destroyed) reset(channel);
    else if (opening.kind === 'http') {
      // One request, as Node's fetch sends it.
      client.tunnel = target;
      channel.unshift(opening.bytes);
      this.#parse(client);
    } else {
      const problem = openingProblem(opening, target.host, carries);
      if (problem === null) {
        channel.send({ say: 'carry', from } satisfies ProxyRequest);
        return;
      }
      const { reason, serverName } = problem;
      const asked = serverName === undefined ? {} : { serverName };
      channel.send({ say: 'misused', reason, ...asked } satisfies ProxyRequest);
      this.#sendFinal(client, ACCESS_DENIED);
    }
  }

  async #plain(client: Client, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { channel, session, tunnel } = client;
    response.shouldKeepAlive = false;
    const refuse = (refusal: Refusal): void => {
      const body = refusalText(refusal);
      response.writeHead(refusalStatus(refusal), {
        'Content-Type': 'text/plain; charset=utf-8',
        'Content-Length': Buffer.byteLength(body),
        Connection: 'close',
        ...refusalHeaders(refusal),
      });
      response.end(body);
      // The rest of the request is discarded; otherwise the client would never read the response.
      request.resume();
      cutSoon(channel);
    };
    if (!this.#first(client)) return;
    const method = request.method ?? 'GET';
    const asked = tunnel === null ? plainTarget(request) : tunnelledTarget(request, tunnel);
    const target = carriesPlaceholder(request) ? PLACEHOLDER : asked;
    if ('bad' in target) {
      refuse(bad(client, method, target));
      return;
    }
    const { host, port } = target;
    client.server = Promise.withResolvers();
    const question =
      tunnel === null ? { say: 'dial' as const, method, host, port } : { say: 'request' as const, method };
    const answer = await this.#ask(client, question);
    if (answer.answer === 'refused') {
      client.server = NO_SERVER;
      refuse({ ...answer, sessionId: session });
      return;
    }
    const server = answer.answer === 'nobody' ? null : await client.server.promise;
    if (server === null || channel.destroyed) {
      server?.destroy();
      reset(channel);
      return;
    }
    response.on('finish', () => cutSoon(channel));
    forwardPlain({
      ...{ client: channel, request, response, target, server },
      onFailed: (why) => refuse({ reason: 'not_reached', why, host, port, allow: null, sessionId: session }),
    });
  }

  #ask(client: Client, question: ProxyRequest): Promise<Answer> {
    const { promise, resolve } = Promise.withResolvers<Answer>();
    client.answered = (answer) => {
      client.answered = null;
      resolve(answer);
    };
    client.channel.send(question);
    if (client.channel.destroyed) client.answered({ answer: 'nobody' });
    return promise;
  }

  /** False for a second request on a connection. */
  #first(client: Client): boolean {
    clearTimeout(client.headTimer);
    if (client.used) {
      reset(client.channel);
      return false;
    }
    client.used = true;
    return true;
  }

  #unreadable(client: Client, code: string | undefined): void {
    clearTimeout(client.headTimer);
    if (client.used || client.channel.destroyed) return;
    client.used = true;
    // A client that sends nothing, such as a spare connection of a browser, requires no decision.
    if (client.channel.consumedBytes > 0)
      client.channel.send({ say: 'denied', method: '', reason: 'bad_request' } satisfies ProxyRequest);
    if (code === 'HPE_HEADER_OVERFLOW') this.#sendFinal(client, unreadableRefusal(431));
    else this.#sendFinal(client, unreadableRefusal(code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400));
  }

  #sendFinal({ channel }: Client, words: string | Buffer): void {
    channel.end(words);
    channel.resume();
    cutSoon(channel);
  }
}

/** Of clients that have not asked for one. */
const NO_SERVER: PromiseWithResolvers<MessageChannel | null> = Promise.withResolvers();

/** Has a request that is answered without a server reported. */
function bad({ channel, session }: Client, method: string, request: BadRequest): Refusal {
  const reason = request === PLACEHOLDER ? 'placeholder' : 'bad_request';
  channel.send({ say: 'denied', method, reason } satisfies ProxyRequest);
  return { reason, why: request.bad, host: '', port: 0, allow: null, sessionId: session };
}

/** Cuts off a client that neither reads its response nor leaves. */
function cutSoon(channel: MessageChannel): void {
  const timer = setTimeout(() => channel.destroy(), FINAL_RESPONSE_MS);
  channel.once('close', () => clearTimeout(timer));
}

/** Breaks the client's connection. */
function reset(channel: MessageChannel): void {
  channel.breakOff({ say: 'reset' } satisfies ProxyRequest, FINAL_RESPONSE_MS);
}

/** An internal failure ends its connection. */
function guard({ channel }: Client, work: Promise<void>): void {
  work.catch(() => reset(channel));
}

function carriesPlaceholder({ url = '', rawHeaders }: IncomingMessage): boolean {
  return [url, ...rawHeaders].some((text) => text.includes(PLACEHOLDER_MARK));
}
