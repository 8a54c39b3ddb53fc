import { type IncomingMessage, request as httpRequest, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { forwardedHeaders, type PlainTarget, returnedHeaders } from './request.ts';
import type { Tunnel } from './tunnel.ts';

export interface PlainForwarding {
  readonly tunnel: Tunnel;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly target: PlainTarget;
  /** Connected to the target. */
  readonly upstream: Socket;
  /** Maximum size of the head of the answer, bytes. */
  readonly headBytes: number;
  /** Called if the server cannot be understood before anything of its answer was passed on. */
  readonly onFailed: (why: string) => void;
}

/**
 * Sends one plain request on and its answer back, both rewritten by Node's parser. A message that breaks off resets
 * the client's connection.
 */
export function forwardPlain(forwarding: PlainForwarding): void {
  const { tunnel, request, response, target, upstream, headBytes, onFailed } = forwarding;
  if (request.headers.expect !== undefined) response.writeContinue();
  const onward = httpRequest({
    createConnection: () => upstream,
    method: request.method ?? 'GET',
    path: target.path,
    headers: forwardedHeaders(request, target),
    setHost: false,
    maxHeaderSize: headBytes,
    insecureHTTPParser: false,
  });
  tunnel.once('close', () => {
    onward.destroy();
    upstream.destroy();
  });
  onward.on('error', (error) => {
    if (response.headersSent) tunnel.destroy();
    else onFailed(`the server sent an invalid response (${codeOf(error)})`);
  });
  // Upgrade is not forwarded, so an upgrade response was not requested.
  onward.on('upgrade', (_answer, socket: Socket) => socket.destroy());
  onward.on('response', (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.statusMessage ?? '', returnedHeaders(answer));
    answer.on('error', () => tunnel.destroy());
    answer.on('close', () => {
      if (!answer.complete) tunnel.destroy();
    });
    answer.pipe(response);
  });
  request.on('error', () => tunnel.destroy());
  request.pipe(onward);
}

function codeOf(error: Error): string {
  return 'code' in error ? String(error.code) : error.name;
}
