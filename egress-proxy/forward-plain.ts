import { type IncomingMessage, request as httpRequest, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { forwardedHeaders, type PlainTarget, returnedHeaders } from './request.ts';
import { HEAD_BYTES } from './wire.ts';

export interface PlainForwarding {
  readonly client: Duplex;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly target: PlainTarget;
  /** Connected to the target. */
  readonly server: Duplex;
  /** Called if the server cannot be understood before anything of its answer was passed on. */
  readonly onFailed: (why: string) => void;
}

/**
 * Sends one plain request on and its answer back, both rewritten by Node's parser. A message that breaks off resets
 * the client's connection.
 */
export function forwardPlain(forwarding: PlainForwarding): void {
  const { client, request, response, target, server, onFailed } = forwarding;
  if (server.destroyed) {
    onFailed('the server has broken the connection');
    return;
  }
  if (request.headers.expect !== undefined) response.writeContinue();
  const onward = httpRequest({
    createConnection: () => server,
    method: request.method ?? 'GET',
    path: target.path,
    headers: forwardedHeaders(request, target),
    setHost: false,
    maxHeaderSize: HEAD_BYTES,
    insecureHTTPParser: false,
  });
  client.once('close', () => {
    onward.destroy();
    server.destroy();
  });
  onward.on('error', (error) => {
    if (response.headersSent) client.destroy();
    else onFailed(`the server sent an invalid response (${codeOf(error)})`);
  });
  // Upgrade is not forwarded, so an upgrade response was not requested.
  onward.on('upgrade', (_answer, socket: Duplex) => {
    socket.destroy();
    onFailed('the server changed the protocol');
  });
  onward.on('response', (answer) => {
    const { statusCode = 0, statusMessage = '' } = answer;
    // Node's parser takes statuses and phrases that its server throws at.
    if (statusCode < 200) {
      onward.destroy(new Error('an invalid status'));
      return;
    }
    const phrase = /^[\t\x20-\x7e]*$/.test(statusMessage) ? statusMessage : '';
    response.writeHead(statusCode, phrase, returnedHeaders(answer));
    answer.on('error', () => client.destroy());
    answer.on('close', () => {
      if (!answer.complete) client.destroy();
    });
    answer.pipe(response);
  });
  request.on('error', () => client.destroy());
  request.pipe(onward);
}

function codeOf(error: Error): string {
  return 'code' in error ? String(error.code) : error.name;
}
