import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { AGENT_TOOL_LIMITS } from '../../protocol/agent-tools.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { nestsDeeperThan } from '../../protocol/wire/untrusted-json.ts';
import type { Log } from '../base/log.ts';
import { EgressPool } from '../egress/pool.ts';
import { Allowance, type Rate } from './allowance.ts';
import { LineCall } from './line-call.ts';
import type { AgentTool } from './session-tools.ts';

/** Exactly what gets an answer, so that nobody waits for one that does not come. */
const MessageSchema = z.looseObject({
  jsonrpc: z.literal('2.0'),
  id: z.union([z.string().max(200), z.int()]).optional(),
  method: z.string().max(200),
  result: z.never().optional(),
  error: z.never().optional(),
});
const INVALID = errorAnswer(null, -32_600, 'this is not a message of the Model Context Protocol');
/** The code of what the tools themselves refuse. */
const REFUSED = -32_000;
/** How long a refused message is held, among those that are answered at the same time: no session sends refused ones faster. */
const HELD_MS = 1000;

export interface AgentToolsOptions {
  readonly tools: readonly AgentTool[];
  /** Whether the session's agent is told of the tools. */
  readonly offersTools: (sessionId: string) => boolean;
  /** Opens a new connection to a session's sidecar. */
  readonly dial: (sessionId: string) => Promise<Duplex>;
  readonly version: string;
  readonly log: Log;
  /** ms, from any beginning. */
  readonly monotonicNow?: () => number;
}

interface OpenSession {
  readonly pool: EgressPool;
  readonly calls: Set<Duplex>;
}

/** Serves the tools to the sandboxes that run. Any process of a sandbox may call them: they are for its session only. */
export class AgentTools {
  readonly #options: AgentToolsOptions;
  readonly #open = new Map<string, OpenSession>();
  /** By session: what it has called lately. Kept when a sandbox ends, so that a new one does not start at zero. */
  readonly #allowances = new Map<string, Map<string, Allowance>>();
  #isClosed = false;

  constructor(options: AgentToolsOptions) {
    this.#options = options;
  }

  /** Sets whether the session's sandbox runs. Can be repeated. */
  setLive(sessionId: string, isLive: boolean): void {
    const open = this.#open.get(sessionId);
    if (!isLive || this.#isClosed) {
      this.#open.delete(sessionId);
      open?.pool.close();
      for (const call of open?.calls ?? []) call.destroy();
    } else if (open === undefined && this.#options.offersTools(sessionId)) {
      const { dial, log } = this.#options;
      const calls = new Set<Duplex>();
      const pool = new EgressPool({
        sessionId,
        forTools: true,
        dial: () => dial(sessionId),
        serve: (tunnel) => this.serve(sessionId, tunnel),
        onRefused: () => undefined,
        log,
      });
      this.#open.set(sessionId, { pool, calls });
    }
  }

  /** The session was deleted. */
  forget(sessionId: string): void {
    this.setLive(sessionId, false);
    this.#allowances.delete(sessionId);
  }

  close(): void {
    this.#isClosed = true;
    for (const sessionId of [...this.#open.keys()]) this.setLive(sessionId, false);
  }

  /** Answers the one message of a connection. */
  serve(sessionId: string, stream: Duplex): void {
    const open = this.#open.get(sessionId);
    stream.on('error', () => stream.destroy());
    if (open === undefined || open.calls.size >= AGENT_TOOL_LIMITS.concurrent) {
      stream.destroy();
      return;
    }
    open.calls.add(stream);
    stream.once('close', () => open.calls.delete(stream));
    new LineCall(stream, async (line, signal) => {
      try {
        return await this.answer(sessionId, line, signal);
      } catch (error) {
        this.#options.log.error('a message of an agent to its tools failed', { session: sessionId, error });
        return INVALID;
      }
    });
  }

  /** The answer to a message, as JSON; null for one that gets none. */
  async answer(sessionId: string, line: Buffer, signal: AbortSignal): Promise<string | null> {
    const allowances = this.#allowancesOf(sessionId);
    const refusal = takeOf(this.#allowance(allowances, 'messages', AGENT_TOOL_LIMITS.messages));
    if (refusal !== null) await sleep(HELD_MS, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return null;
    const message = parseMessage(line);
    if (message === null) return INVALID;
    if (refusal !== null)
      return message.id === undefined ? null : errorAnswer(message.id, REFUSED, refusal.sentence);
    // Loaded with the first call: many sessions never make one.
    const { answerMessage } = await import('./tool-server.ts');
    const allowanceOf = ({ name, rate }: AgentTool): Allowance =>
      this.#allowance(allowances, `tool ${name}`, rate);
    return await answerMessage(message, { sessionId, signal }, allowanceOf, this.#options);
  }

  readonly #now = (): number => this.#options.monotonicNow?.() ?? performance.now();

  #allowance(allowances: Map<string, Allowance>, name: string, rate: Rate): Allowance {
    const allowance = allowances.get(name) ?? new Allowance(rate, this.#now);
    allowances.set(name, allowance);
    return allowance;
  }

  #allowancesOf(sessionId: string): Map<string, Allowance> {
    const allowances = this.#allowances.get(sessionId) ?? new Map<string, Allowance>();
    this.#allowances.set(sessionId, allowances);
    return allowances;
  }
}

/** Why a message is refused; null if it is not. */
function takeOf(allowance: Allowance): HoldfastError | null {
  try {
    allowance.take('the tools');
    return null;
  } catch (error) {
    return HoldfastError.from(error);
  }
}

function errorAnswer(id: string | number | null, code: number, message: string): string {
  return JSON.stringify({ jsonrpc: '2.0', id, error: { code, message } });
}

function parseMessage(line: Buffer): z.infer<typeof MessageSchema> | null {
  if (nestsDeeperThan(line, AGENT_TOOL_LIMITS.depth)) return null;
  try {
    return MessageSchema.safeParse(JSON.parse(line.toString('utf8'))).data ?? null;
  } catch {
    return null;
  }
}
