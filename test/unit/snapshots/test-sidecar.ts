import { type Duplex, duplexPair } from 'node:stream';
import { parseHash } from '../../../snapshot-format/objects.ts';
import { type ScanResult, STORE_CALLS } from '../../../snapshot-format/wire.ts';
import { Peer } from '../../../protocol/wire/peer.ts';
import { type HandlerContext, NOTHING } from '../../../protocol/wire/shapes.ts';
import { SIDECAR_METHODS, SIDECAR_PROTOCOL } from '../../../sidecar/wire.ts';
import { objectsOf, type Tree } from './small-tree.ts';
import { StoredObjects } from './stored-objects.ts';

export type SidecarPeer = Peer<typeof SIDECAR_METHODS, typeof STORE_CALLS>;
interface ScanParams {
  readonly base: string | null;
  readonly budgetBytes: number | null;
  readonly frozen: boolean;
  readonly doubts: boolean;
  readonly awaitsLeases: boolean;
}

/** A program in the sidecar's place, which keeps to the contract unless a test tells it otherwise. Its workspace is `tree`. */
export class TestSidecar {
  tree: Tree = {};
  /** What it was asked for. */
  readonly scans: ScanParams[] = [];
  /** Answers a scan in its own way; undefined: as usual, with these members of the answer changed. */
  onScan: (
    params: ScanParams,
    peer: SidecarPeer,
    context: Pick<HandlerContext, 'signal' | 'progress'>,
  ) => Promise<Partial<ScanResult> | undefined> = () => Promise.resolve(undefined);
  peer: SidecarPeer | null = null;

  readonly dial = (session: string): Promise<Duplex> => {
    const [ours, theirs] = duplexPair();
    this.peer = new Peer({
      stream: ours,
      name: 'the supervisor',
      serves: SIDECAR_METHODS,
      calls: STORE_CALLS,
      notifies: NOTHING,
      hears: NOTHING,
      partial: true,
      handlers: {
        hello: () => ({ protocol: SIDECAR_PROTOCOL, session, build: 'test', watch: 'inotify' as const }),
        'snapshot/scan': async (params, { peer, signal, progress }) => {
          this.scans.push(params);
          const changed = await this.onScan(params, peer, { signal, progress });
          return { ...(await this.#scan(peer)), ...changed };
        },
      },
    });
    return Promise.resolve(theirs);
  };

  async #scan(peer: SidecarPeer): Promise<ScanResult> {
    const { objects, root } = objectsOf(this.tree);
    const missing = await unknown(peer, objects);
    const newBytes = missing.bodies.size === 0 ? 0 : await send(peer, 0, missing);
    const files = [...objects.bodies.values()].filter(({ kind }) => kind === 0).length;
    return {
      root,
      complete: true,
      files,
      directories: 0,
      bytes: 0,
      changedFiles: missing.bodies.size,
      changedBytes: 0,
      newObjects: missing.bodies.size,
      newBytes,
      scanMs: 1,
      readMs: 1,
      moved: false,
      missing: 0,
      missingPaths: [],
    };
  }
}

async function unknown(peer: SidecarPeer, objects: StoredObjects): Promise<StoredObjects> {
  const all = [...objects.bodies];
  const hashes = Buffer.concat(all.map(([hex]) => parseHash(hex)));
  const { bytes } = await peer.callWithBytes('store/have', { hashes: all.length }, { bytes: hashes });
  const missing = new StoredObjects();
  all.forEach(([hex, object], at) => {
    if (((bytes[at >> 3] ?? 0) & (1 << (at & 7))) === 0) missing.bodies.set(hex, object);
  });
  return missing;
}

/** Sends them as one pack and seals it. */
export async function send(peer: SidecarPeer, pack: number, objects: StoredObjects): Promise<number> {
  const bytes = objects.pack();
  await peer.call('store/put', { pack, offset: 0 }, { bytes });
  await peer.call('store/sealed', { pack, bytes: bytes.length, objects: objects.bodies.size });
  return bytes.length;
}
