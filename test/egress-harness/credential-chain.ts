import { once } from 'node:events';
import { Agent, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { createServer as createTlsServer, type Server, type TLSSocket } from 'node:tls';
import { type Credential, type CredentialEntry, credentialsOf } from '../../protocol/credentials.ts';
import type { EgressOptions } from '../../supervisor/egress/egress.ts';
import type { SecretValue } from '../../supervisor/secrets/secret-store.ts';
import { InProcessEgress } from './in-process-egress.ts';
import { TEST_CERTIFICATE } from './test-certificate.ts';

export interface CredentialChainOptions {
  readonly as?: Extract<CredentialEntry, { as: unknown }>['as'];
  readonly limits?: Extract<CredentialEntry, { as: unknown }>['limits'];
  readonly secret?: string;
  readonly carriedMs?: number;
  /** Reads what the sandbox sends; default: its code in this process. */
  readonly proxy?: EgressOptions['proxy'];
  /** Answers requests; default: 200 `hello`. */
  readonly answer?: (request: IncomingMessage, response: ServerResponse) => void;
  /** Reads and writes bytes instead: a server that keeps to no protocol. */
  readonly raw?: (socket: TLSSocket) => void;
}

export interface ChainAnswer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** A credential of `api.test` as a sandbox sees it: sidecar, supervisor and server in this process. */
export class CredentialChain {
  readonly egress: InProcessEgress;
  readonly credential: Credential;
  /** What `secret set` would have kept; tests change it. */
  readonly secret: { value: string | null; version: number };
  readonly #server: Server;
  readonly #agent = new Agent({ keepAlive: true });

  private constructor(
    egress: InProcessEgress,
    credential: Credential,
    secret: { value: string | null; version: number },
    server: Server,
  ) {
    this.egress = egress;
    this.credential = credential;
    this.secret = secret;
    this.#server = server;
  }

  static async open(options: CredentialChainOptions = {}): Promise<CredentialChain> {
    const { answer = hello, raw } = options;
    const server: Server =
      raw === undefined
        ? createHttpsServer(TEST_CERTIFICATE, answer)
        : createTlsServer(TEST_CERTIFICATE, raw);
    server.on('tlsClientError', () => undefined);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const [credential] = credentialsOf({
      credentials: [
        {
          host: `api.test:${port}`,
          secret: 'KEY',
          as: options.as ?? 'bearer',
          ...(options.limits === undefined ? {} : { limits: options.limits }),
        },
      ],
    });
    if (credential === undefined) throw new Error('there is no credential');
    const secret: { value: string | null; version: number } = { value: options.secret ?? SECRET, version: 1 };
    const egress = await InProcessEgress.open([`127.0.0.1:${port}`], {
      credentials: [credential],
      authorities: [TEST_CERTIFICATE.cert],
      ...(options.carriedMs === undefined ? {} : { carriedMs: options.carriedMs }),
      ...(options.proxy === undefined ? {} : { proxy: options.proxy }),
      resolve: (name) =>
        name.endsWith('api.test') ? Promise.resolve(['127.0.0.1']) : Promise.reject(new Error('no')),
      secret: (): SecretValue | null =>
        secret.value === null
          ? null
          : { value: Buffer.from(secret.value), identity: `KEY/${secret.version}/${secret.value}` },
    });
    return new CredentialChain(egress, credential, secret, server);
  }

  get port(): number {
    return this.egress.portOf(this.credential);
  }

  connect(): Promise<Socket> {
    return this.egress.connect(this.port);
  }

  sendRaw(bytes: string | Buffer, ms?: number): Promise<{ text: string; reset: boolean } | null> {
    return this.egress.sendRaw(bytes, ms, this.port);
  }

  /** A request of a well-behaved client with a kept connection. Rejects if the answer breaks off. */
  async request(
    path: string,
    options: { method?: string; headers?: Record<string, string>; body?: string | Buffer } = {},
  ): Promise<ChainAnswer> {
    const { promise, resolve, reject } = Promise.withResolvers<ChainAnswer>();
    const { method = 'GET', headers = {}, body } = options;
    const sent = httpRequest(
      { host: '127.0.0.1', port: this.port, path, method, headers, agent: this.#agent },
      (response) => {
        const parts: Buffer[] = [];
        response.on('data', (chunk: Buffer) => parts.push(chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: Buffer.concat(parts).toString('latin1'),
          }),
        );
      },
    );
    sent.on('error', reject);
    sent.end(body);
    return promise;
  }

  async dispose(): Promise<void> {
    this.#agent.destroy();
    await this.egress.dispose();
    this.#server.close();
  }
}

function hello(_request: IncomingMessage, response: ServerResponse): void {
  response.end('hello');
}

/** With characters that each encoding writes differently. */
export const SECRET = 'sk-test/0123+456 789~"&<>';
