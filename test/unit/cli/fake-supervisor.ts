import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { listenAt } from '../../../protocol/client/socket.ts';
import type { ProfileSummary, Session, Turn } from '../../../protocol/entities.ts';
import { METHODS, NOTIFICATIONS } from '../../../protocol/methods.ts';
import type { HoldfastError } from '../../../protocol/errors.ts';
import type { Methods, Notifications } from '../../../protocol/methods.ts';
import { Peer } from '../../../protocol/wire/peer.ts';
import { NOTHING, withBytes } from '../../../protocol/wire/shapes.ts';
import type { Handlers, Nothing } from '../../../protocol/wire/shapes.ts';
import { clientInfo } from '../../../cli/version.ts';

export type ClientPeer = Peer<Methods, Nothing, Notifications>;
export type FakeHandlers = Partial<Handlers<Methods, ClientPeer>>;

/**
 * A fake supervisor: the protocol's own server on a real socket of a home of its own, with canned answers behind it. What a real
 * one would do with sandboxes is tested against a real one, in test/docker.
 */
export class FakeSupervisor {
  readonly home: string;
  /** Every request but hello, in order. */
  readonly asked: { readonly method: string; readonly params: unknown; readonly bytes: string }[] = [];
  #handlers: FakeHandlers;
  readonly #peers = new Set<ClientPeer>();
  #server: Server | undefined;
  #stop: (() => Promise<void>) | undefined;

  private constructor(handlers: FakeHandlers) {
    this.home = mkdtempSync(join(tmpdir(), 'holdfast-cli-'));
    this.#handlers = handlers;
  }

  static async start(handlers: FakeHandlers = {}): Promise<FakeSupervisor> {
    const fake = new FakeSupervisor(handlers);
    await fake.listen();
    return fake;
  }

  async listen(): Promise<void> {
    this.#server = createServer((socket) => {
      const peer: ClientPeer = new Peer({
        stream: socket,
        name: 'a client',
        serves: METHODS,
        handlers: this.#recorded(),
        partial: true,
        calls: NOTHING,
        notifies: NOTIFICATIONS,
        hears: NOTHING,
        opensWith: { method: 'hello', before: ['ping'] },
      });
      this.#peers.add(peer);
      void peer.closed.then(() => this.#peers.delete(peer));
    });
    this.#stop = await listenAt(this.#server, { directory: this.home, name: 'supervisor.sock' });
  }

  /** From the next connection on, these answers instead. */
  serve(handlers: FakeHandlers): void {
    this.#handlers = { ...this.#handlers, ...handlers };
  }

  /** Ends every connection; the next one finds it again. */
  async dropClients(reason?: HoldfastError): Promise<void> {
    const peers = [...this.#peers];
    for (const peer of peers) peer.close(reason);
    await Promise.all(peers.map((peer) => peer.closed));
  }

  get clients(): number {
    return this.#peers.size;
  }

  methodsAsked(): string[] {
    return this.asked.map(({ method }) => method);
  }

  /** As if it had been killed, or, with a reason, as one that says why it goes; the home stays. */
  async leave(reason?: HoldfastError): Promise<void> {
    await this.dropClients(reason);
    await this.#stop?.();
    this.#stop = undefined;
  }

  async end(): Promise<void> {
    await this.leave();
    rmSync(this.home, { recursive: true, force: true });
  }

  #recorded(): FakeHandlers {
    const hello: FakeHandlers['hello'] = () => ({
      protocolVersion: '1',
      supervisor: { ...clientInfo(), name: 'fake', pid: 1, epoch: 1 },
      home: this.home,
      capabilities: {},
    });
    const entries = Object.entries(this.#handlers).map(([method, handler]) => [
      method,
      (params: never, context: never) => {
        const { bytes } = context as { bytes: Buffer };
        this.asked.push({ method, params, bytes: bytes.toString('utf8') });
        return (handler as (params: never, context: never) => unknown)(params, context);
      },
    ]);
    return { hello, ...Object.fromEntries(entries) } as FakeHandlers;
  }
}

export const SESSION_ID = 'ses-aaaaaaaaaaaaaaaa';
export const TURN_ID = 'turn-bbbbbbbbbbbbbbbb';
export const EXEC_ID = 'exec-cccccccccccccccc';
/** The time of every test's clock. */
export const NOW = Date.parse('2026-03-01T12:00:00.000Z');

export function session(changes: Partial<Session> = {}): Session {
  return {
    id: SESSION_ID,
    name: 'default',
    profile: 'counter',
    status: 'idle',
    persistent: true,
    throwaway: false,
    createdAt: '2026-03-01T10:00:00.000Z',
    lastActiveAt: '2026-03-01T11:57:00.000Z',
    expiresAt: null,
    pinned: false,
    starred: false,
    archived: false,
    tags: [],
    model: null,
    workspaceBytes: 1536,
    backing: 'directory',
    filling: null,
    engineReachable: true,
    runningTurn: null,
    queuedTurns: 0,
    about: null,
    lastPrompt: null,
    lastSeq: 7,
    ...changes,
  };
}

export function turn(changes: Partial<Turn> = {}): Turn {
  return {
    turnId: TURN_ID,
    sessionId: SESSION_ID,
    status: 'succeeded',
    createdAt: '2026-03-01T11:59:00.000Z',
    startedAt: '2026-03-01T11:59:01.000Z',
    endedAt: '2026-03-01T11:59:02.000Z',
    ahead: 0,
    waitingFor: null,
    sandbox: { reused: true, case: 'reuse' },
    output: { count: 1 },
    outputArtifact: false,
    exitCode: null,
    error: null,
    bytes: { stdout: 0, stderr: 0, result: 0 },
    timings: { queuedMs: 1, dispatchMs: 2, turnMs: 3, workerStartMs: null },
    worker: { id: 'worker-1', reused: true },
    snapshot: null,
    ...changes,
  };
}

export const RUNNING = { status: 'running', endedAt: null, output: null } as const;

export function profile(changes: Partial<ProfileSummary> = {}): ProfileSummary {
  return {
    name: 'counter',
    version: 3,
    deployedAt: '2026-03-01T11:00:00.000Z',
    image: 'an-image',
    agent: { protocol: 'handler', entry: 'agent.py', command: null },
    persistent: true,
    files: 2,
    bytes: 700,
    sessions: 1,
    source: '/srv/counter',
    checks: {},
    ...changes,
  };
}

export const COMMAND_AGENT = { protocol: 'command', entry: null, command: ['cat'] };

/** Serves stored bytes as `turn/output` does: what there is from the offset on, all of it final. */
export function outputOf(streams: {
  readonly stdout?: string | Buffer;
  readonly stderr?: string | Buffer;
  readonly result?: string;
}): NonNullable<FakeHandlers['turn/output']> {
  return ({ stream, offset, limit }) => {
    const all = Buffer.from(streams[stream] ?? '');
    const part = all.subarray(offset, offset + (limit ?? all.length));
    return withBytes({ offset, total: all.length, ended: true }, part);
  };
}

/** The answers around a turn that has ended, for tests that change one of them. */
export function turnHandlers(ended: Turn, streams: Parameters<typeof outputOf>[0] = {}): FakeHandlers {
  return {
    'profile/list': () => ({ profiles: [profile()] }),
    'session/show': () => ({ session: session() }),
    'turn/start': () => ({ turn: turn({ ...RUNNING }), session: session() }),
    'turn/show': () => ({ turn: ended }),
    'turn/output': outputOf(streams),
    'turn/wait': () => ({ turn: ended }),
  };
}
