import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { framingProblem } from '../protocol/http-headers.ts';
import type { MessageChannel } from '../protocol/wire/message-channel.ts';
import { type EndpointRefusal, rawRefusal, refusalBody, refusalHead } from './credential-refusal.ts';
import {
  CREDENTIAL_HEAD_BYTES,
  CREDENTIAL_HEADERS,
  type CredentialSay,
  CredentialRefusalSchema,
  ExchangeAnswerSchema,
  FINAL_RESPONSE_MS,
} from './wire.ts';

/** A connection without a request, or with one whose head does not end, is closed after this time. */
const IDLE_MS = 75_000;

interface Running {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Once the supervisor has let the request go on. */
  exchange: MessageChannel | null;
}

/** State of one connection of a sandbox. */
interface Client {
  readonly channel: MessageChannel;
  readonly id: number;
  idle: NodeJS.Timeout | undefined;
  /** The number of the latest request. */
  last: number;
  readonly running: Map<number, Running>;
}

/**
 * The HTTP server behind the ports of all credentials. Node's parser reads the requests; the supervisor, which has the
 * secret, decides about each, sends it on in its own words, and gives the answer. What is here never sees a secret.
 */
export class CredentialServer {
  readonly #server: Server;
  readonly #clients = new Map<Duplex, Client>();
  readonly #byId = new Map<number, Client>();

  constructor() {
    this.#server = createServer({
      maxHeaderSize: CREDENTIAL_HEAD_BYTES,
      insecureHTTPParser: false,
      // The client's Host is ignored.
      requireHostHeader: false,
      joinDuplicateHeaders: false,
      keepAlive: true,
      // An upload may take hours.
      requestTimeout: 0,
    });
    // A bound of Node's would drop the headers after it in silence; the size of the head bounds them.
    this.#server.maxHeadersCount = 0;
    // Otherwise Node cuts off the response to a client that half-closes its connection.
    Reflect.set(this.#server, 'httpAllowHalfOpen', true);
    const serve = (request: IncomingMessage, response: ServerResponse): void => {
      const client = this.#clients.get(request.socket);
      if (client === undefined) request.socket.destroy();
      else this.#serve(client, request, response);
    };
    this.#server.on('request', serve);
    // Node would send 100 Continue before the decision.
    this.#server.on('checkContinue', serve);
    this.#server.on('checkExpectation', serve);
    this.#server.on('connect', (_request, stream: Duplex) => {
      this.#clients.get(stream)?.channel.send({ say: 'denied' } satisfies CredentialSay);
      sendFinal(stream, rawRefusal(405));
    });
    this.#server.on('clientError', (error: Error & { code?: string }, stream: Duplex) => {
      // The parser complains of each further piece of what it cannot read.
      if (stream.writableEnded) return;
      const client = this.#clients.get(stream);
      // An answer that has begun cannot be followed by another in its middle.
      if (client === undefined || client.running.size > 0) reset(client?.channel ?? stream);
      else {
        client.channel.send({ say: 'denied' } satisfies CredentialSay);
        sendFinal(stream, rawRefusal(error.code === 'HPE_HEADER_OVERFLOW' ? 431 : 400));
      }
    });
  }

  /** Serves a connection of a sandbox. */
  serve(channel: MessageChannel, id: number): void {
    const client: Client = { channel, id, idle: undefined, last: 0, running: new Map() };
    this.#clients.set(channel, client);
    this.#byId.set(id, client);
    channel.on('error', () => channel.destroy());
    channel.on('message', (message: unknown) => {
      const { exchange, ...refusal } = CredentialRefusalSchema.parse(message);
      const running = client.running.get(exchange);
      if (running !== undefined) refuse(client, running, refusal);
    });
    channel.once('close', () => {
      clearTimeout(client.idle);
      this.#clients.delete(channel);
      this.#byId.delete(id);
      for (const { exchange } of client.running.values()) exchange?.destroy();
    });
    rest(client);
    this.#server.emit('connection', channel);
    channel.resume();
  }

  /** The request with this number may go on. */
  takeExchange(channel: MessageChannel, id: number, number: number): void {
    channel.on('error', () => channel.destroy());
    const client = this.#byId.get(id);
    const running = client?.running.get(number);
    if (client === undefined || running?.exchange !== null) {
      channel.destroy();
      return;
    }
    const { request, response } = running;
    running.exchange = channel;
    channel.once('message', (message: unknown) => {
      const answer = ExchangeAnswerSchema.parse(message);
      if (answer.answer === 'refused') {
        request.unpipe(channel);
        refuse(client, running, answer);
        return;
      }
      response.writeHead(answer.status, answer.phrase, answer.headers);
      // An event stream begins long before its first event.
      response.flushHeaders();
      channel.pipe(response);
    });
    channel.once('close', () => {
      // Whoever gets a part of an answer must not take it for the whole.
      if (!channel.readableEnded && !response.writableEnded) reset(client.channel);
    });
    request.on('error', () => channel.destroy());
    request.on('aborted', () => channel.destroy());
    if (request.headers.expect !== undefined) response.writeContinue();
    request.pipe(channel);
  }

  #serve(client: Client, request: IncomingMessage, response: ServerResponse): void {
    clearTimeout(client.idle);
    client.last += 1;
    const number = client.last;
    const running: Running = { request, response, exchange: null };
    client.running.set(number, running);
    response.once('close', () => {
      client.running.delete(number);
      // The client has gone, or has its answer before it has sent all of its request.
      if (!response.writableFinished || !request.complete) running.exchange?.destroy();
      rest(client);
    });
    const { method = '', url = '', rawHeaders } = request;
    const tooMany = rawHeaders.length > 2 * CREDENTIAL_HEADERS;
    const why = tooMany ? `it has more than ${String(CREDENTIAL_HEADERS)} headers` : framingProblem(request);
    if (why !== null) {
      client.channel.send({ say: 'denied' } satisfies CredentialSay);
      refuse(client, running, { status: tooMany ? 431 : 400, reason: 'bad_request', why });
      return;
    }
    client.channel.send({
      say: 'request',
      exchange: number,
      method,
      path: url,
      headers: rawHeaders,
    } satisfies CredentialSay);
  }
}

function refuse(client: Client, { request, response }: Running, refusal: EndpointRefusal): void {
  if (response.headersSent || response.destroyed) {
    reset(client.channel);
    return;
  }
  const body = refusalBody(refusal);
  response.writeHead(refusal.status, refusalHead(refusal, body));
  response.end(request.method === 'HEAD' ? undefined : body);
  // The rest of the request is discarded; otherwise the client would never read the response.
  request.resume();
  response.once('finish', () => cutSoon(client.channel));
}

function rest(client: Client): void {
  clearTimeout(client.idle);
  if (client.running.size > 0 || client.channel.destroyed) return;
  client.idle = setTimeout(() => reset(client.channel), IDLE_MS);
}

function sendFinal(stream: Duplex, words: string): void {
  stream.end(words);
  stream.resume();
  cutSoon(stream);
}

/** Cuts off a client that neither reads its response nor leaves. */
function cutSoon(stream: Duplex): void {
  const timer = setTimeout(() => stream.destroy(), FINAL_RESPONSE_MS);
  stream.once('close', () => clearTimeout(timer));
}

/** Breaks the client's connection. */
function reset(stream: Duplex | MessageChannel): void {
  if ('breakOff' in stream) stream.breakOff({ say: 'reset' } satisfies CredentialSay, FINAL_RESPONSE_MS);
  else stream.destroy();
}
