import { isUtf8 } from 'node:buffer';
import { ENDED_TURN_STATUSES } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { EventData } from '../../protocol/events.ts';
import { MEMORY_BYTES } from '../../protocol/memory.ts';
import type { Memory } from '../../protocol/memory.ts';
import { protocolsThatRun, runsAs } from '../../protocol/turn-kinds.ts';
import type { SessionMemory } from '../conversation/session-memory.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { TurnRow } from '../store/turns.ts';
import type { TurnQueue } from '../turns/turn-queue.ts';
import type { TurnRequests } from './turn-requests.ts';

const DEFAULT_TIMEOUT_MS = 60_000;
/** For the start of the sandbox and for the end of a turn that is cancelled, beyond the time of the turn. */
const SANDBOX_MS = 30_000;
const PAGE = 200;

const PROMPT = `This session is about to stop. Write what whoever goes on with it must know: conventions, open questions, the last known results. Answer with that text alone, in plain text of at most ${String(MEMORY_BYTES / 2)} characters, without a greeting. Do not use tools, and change no files.`;

export interface MemoryRequest {
  readonly timeoutMs?: number | undefined;
  readonly opId: string;
}

export interface RequestedMemory {
  readonly turnId: string;
  /** What the agent wrote; null if it wrote nothing in time. */
  readonly memory: Memory | null;
  /** Why there is none. */
  readonly why: string | null;
}

export interface MemoryRequestsOptions {
  readonly memory: SessionMemory;
  readonly requests: TurnRequests;
  readonly queue: Pick<TurnQueue, 'wait' | 'cancel'>;
  readonly events: EventLog;
  readonly contents: Contents;
  readonly profiles: Pick<Profiles, 'get'>;
  /** ms since 1970. */
  readonly now: () => number;
}

/**
 * Asks the agent of a session for its memory, as before a stop: a turn of its own, bounded in time, whose answer becomes the next version.
 * A request that is repeated with its `opId` goes on with the same turn.
 */
export class MemoryRequests {
  readonly #options: MemoryRequestsOptions;

  constructor(options: MemoryRequestsOptions) {
    this.#options = options;
  }

  /** Errors: `not_supported` for an agent that takes no prompts, `cancelled` when the client has gone, and those of a turn. */
  async ask(
    { id: session, profile, name }: SessionRow,
    { timeoutMs = DEFAULT_TIMEOUT_MS, opId }: MemoryRequest,
    signal: AbortSignal,
  ): Promise<RequestedMemory> {
    const { memory, requests, queue, profiles, events, now } = this.#options;
    if (!runsAs(profiles.get(profile)?.config.agent, 'conversation')) {
      throw new HoldfastError('not_supported', `The agent of ${name} cannot be asked for a memory`, {
        why: `only agents with ${protocolsThatRun('conversation')} take prompts of that kind`,
        next: 'write one with `holdfast memory set`',
      });
    }
    const input = Buffer.from(PROMPT);
    const head = events.head(session).seq;
    const since = now();
    const { id: turnId } = await requests.start({ session, input, timeoutMs, opId: `${opId}:turn` });
    let turn = await queue.wait(turnId, timeoutMs + SANDBOX_MS, signal);
    if (!signal.aborted && !ENDED_TURN_STATUSES.has(turn.status)) {
      queue.cancel(turnId);
      turn = await queue.wait(turnId, SANDBOX_MS, signal);
    }
    if (signal.aborted) {
      throw new HoldfastError('cancelled', 'Nobody waits for the memory any longer', {
        why: 'the turn that asks for it continues until its own end',
      });
    }
    const found = this.#writtenIn(turn);
    // With its own tool, if it has one.
    if (found !== null && found.author === 'agent') return { turnId, memory: found, why: null };
    const text = turn.status === 'succeeded' ? this.#answerOf(turn, turn.createdAt < since ? 0 : head) : '';
    const why = turn.status === 'succeeded' ? 'the agent answered nothing' : describeEnd(turn);
    if (text === '') return { turnId, memory: null, why };
    return {
      turnId,
      memory: memory.set(session, { text, author: 'agent', opId: `${opId}:memory` }),
      why: null,
    };
  }

  /** A version that was written since the turn was asked for. */
  #writtenIn({ sessionId, createdAt }: TurnRow): Memory | null {
    const newest = this.#options.memory.show(sessionId);
    return newest !== null && Date.parse(newest.at) > createdAt ? newest : null;
  }

  /** What the agent said in the turn, without its thoughts, cut to the size of a memory. `from`: an event before the turn. */
  #answerOf({ id: turnId, sessionId }: TurnRow, from: number): string {
    const { events, contents } = this.#options;
    const parts: Buffer[] = [];
    let bytes = 0;
    for (let after = from; bytes < MEMORY_BYTES;) {
      const page = events.read(sessionId, { after, limit: PAGE, type: 'agent.message' });
      const last = page.at(-1);
      if (last === undefined) break;
      after = last.seq;
      for (const { data } of page) {
        const { turnId: turn, role, content } = data as EventData<'agent.message'>;
        if (turn !== turnId || role !== 'agent' || content === null || bytes >= MEMORY_BYTES) continue;
        const { part } = contents.read(sessionId, content.sha256, 0, MEMORY_BYTES - bytes);
        parts.push(part);
        bytes += part.length;
      }
    }
    return wholeText(Buffer.concat(parts)).trim();
  }
}

/** Without a character that was cut in its middle. */
function wholeText(bytes: Buffer): string {
  let end = Math.min(bytes.length, MEMORY_BYTES);
  while (end > 0 && end > bytes.length - 4 && !isUtf8(bytes.subarray(0, end))) end -= 1;
  return bytes.subarray(0, end).toString('utf8');
}

function describeEnd({ status }: TurnRow): string {
  return status === 'timeout'
    ? 'the agent did not answer in time'
    : `the turn that asked for it is ${status}`;
}
