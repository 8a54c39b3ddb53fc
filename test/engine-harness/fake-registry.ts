import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { pack } from 'tar-stream';
import { buffer } from 'node:stream/consumers';

const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';

/**
 * A fake of a registry, with one image of one layer that comes at the pace and with the faults that a test wants. The engine
 * that pulls from it is real.
 */
export class FakeRegistry {
  readonly name = 'thing/one';
  readonly #blobs = new Map<string, Buffer>();
  readonly #server: Server;
  #manifest = '';
  #layer = '';
  /** Bytes of the layer after which nothing more comes; null: all of it. */
  stallAfter: number | null = null;
  readonly #stalled = new Set<ServerResponse>();

  private constructor() {
    this.#server = createServer((request, response) =>
      this.#answer(request.url ?? '', request.method ?? '', response),
    );
  }

  static async start(layerBytes: number): Promise<FakeRegistry> {
    const registry = new FakeRegistry();
    const archive = pack();
    archive.entry({ name: 'noise' }, randomBytes(layerBytes));
    archive.finalize();
    const tar = await buffer(archive);
    const layer = gzipSync(tar, { level: 0 });
    const config = Buffer.from(
      JSON.stringify({
        architecture: process.arch === 'arm64' ? 'arm64' : 'amd64',
        os: 'linux',
        config: {},
        rootfs: { type: 'layers', diff_ids: [digest(tar)] },
        history: [],
      }),
    );
    const blob = (mediaType: string, bytes: Buffer): object => {
      registry.#blobs.set(digest(bytes), bytes);
      return { mediaType, size: bytes.length, digest: digest(bytes) };
    };
    registry.#layer = digest(layer);
    registry.#manifest = JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: blob('application/vnd.docker.container.image.v1+json', config),
      layers: [blob('application/vnd.docker.image.rootfs.diff.tar.gzip', layer)],
    });
    registry.#server.listen(0, '127.0.0.1');
    await once(registry.#server, 'listening');
    return registry;
  }

  get reference(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}/${this.name}:1`;
  }

  async close(): Promise<void> {
    for (const response of this.#stalled) response.destroy();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #answer(url: string, method: string, response: ServerResponse): void {
    if (url === '/v2/') return void response.end('{}');
    const own = digest(Buffer.from(this.#manifest));
    if ([`/v2/${this.name}/manifests/1`, `/v2/${this.name}/manifests/${own}`].includes(url)) {
      response.setHeader('content-type', MANIFEST);
      response.setHeader('docker-content-digest', own);
      response.setHeader('content-length', Buffer.byteLength(this.#manifest));
      return void response.end(method === 'HEAD' ? undefined : this.#manifest);
    }
    const wanted = url.slice(url.lastIndexOf('/') + 1);
    const bytes = this.#blobs.get(wanted);
    if (bytes === undefined) {
      response.statusCode = 404;
      response.setHeader('content-type', 'application/json');
      return void response.end('{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}');
    }
    response.setHeader('content-length', bytes.length);
    if (this.stallAfter !== null && wanted === this.#layer) {
      this.#stalled.add(response);
      response.write(bytes.subarray(0, this.stallAfter));
      return;
    }
    response.end(bytes);
  }
}

function digest(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}
