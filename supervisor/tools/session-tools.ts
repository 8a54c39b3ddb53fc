import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { SnapshotIdSchema } from '../../protocol/ids.ts';
import { MEMORY_BYTES } from '../../protocol/memory.ts';
import type { Snapshot } from '../../protocol/snapshots.ts';
import type { ConversationSearch } from '../conversation/conversation-search.ts';
import type { SessionMemory } from '../conversation/session-memory.ts';
import type { Policies } from '../egress/policies.ts';
import type { Comparisons } from '../snapshots/comparisons.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { Sessions } from '../store/sessions.ts';
import type { Turns } from '../store/turns.ts';
import type { AgentSnapshots } from './agent-snapshots.ts';
import type { Rate } from './allowance.ts';
import type { EgressRequests } from './egress-requests.ts';

/** Who calls: a process in the sandbox of this session, whichever it is. */
export interface Caller {
  readonly sessionId: string;
  /** Aborts when it has gone. */
  readonly signal: AbortSignal;
}

/** One tool. `call` gets what `input` has checked, and returns text or what becomes JSON. */
export interface AgentTool<I extends z.ZodObject = z.ZodObject> {
  readonly name: string;
  readonly description: string;
  readonly input: I;
  /** It changes nothing. */
  readonly isReading: boolean;
  /** How often a session may call it. */
  readonly rate: Rate;
  readonly call: (input: z.output<I>, caller: Caller) => unknown;
}

export interface SessionToolsOptions {
  readonly sessions: Pick<Sessions, 'get'>;
  readonly turns: Pick<Turns, 'getRunning'>;
  readonly policies: Pick<Policies, 'describe'>;
  readonly sessionMemory: SessionMemory;
  readonly conversationSearch: ConversationSearch;
  readonly snapshotService: Pick<SnapshotService, 'find' | 'findSession' | 'list' | 'view'>;
  readonly agentSnapshots: Pick<AgentSnapshots, 'create'>;
  readonly comparisons: Pick<Comparisons, 'diff'>;
  readonly egressRequests: EgressRequests;
}

const READS: Rate = { burst: 60, everyMs: 1000 };
/** What stores something, or reads all files. */
const WRITES: Rate = { burst: 10, everyMs: 30_000 };
const MOST_HOSTS = 100;

/** A function, so that each tool's input has its own type. */
function tool<I extends z.ZodObject>(definition: AgentTool<I>): AgentTool {
  return definition;
}

/**
 * What an agent may do with its own session. No tool takes a session: it is that of the sandbox from which the call came. None restores,
 * deletes or changes a rule, and nothing that is not the session's own is shown.
 */
export function sessionTools(options: SessionToolsOptions): readonly AgentTool[] {
  const { sessions, turns, policies, sessionMemory: memory, conversationSearch, egressRequests } = options;
  const { snapshotService, agentSnapshots, comparisons } = options;

  /** A snapshot of the session itself: one of a fork, which shares its store, is as unknown as one of a stranger. */
  const ownSnapshot = (id: string, sessionId: string): void => {
    if (snapshotService.find(id, sessionId).sessionId === sessionId) return;
    throw new HoldfastError('not_found', `There is no snapshot ${id} of this session`);
  };

  return [
    tool({
      name: 'session_info',
      description:
        'What Holdfast knows about this sandbox and session: its name, the hosts that may be reached, the version of its memory.',
      input: z.strictObject({}),
      isReading: true,
      rate: READS,
      call: (_input, { sessionId }) => {
        const session = sessions.get(sessionId);
        const rules = policies.describe(sessionId).rules.filter(({ effect }) => effect === 'allow');
        return {
          session: sessionId,
          name: session?.name,
          profile: session?.profile,
          turn: turns.getRunning(sessionId)?.id ?? null,
          workspace: '/workspace',
          workspaceSurvives: session?.persistent,
          memoryVersion: memory.show(sessionId)?.version ?? 0,
          reachableHosts: rules.slice(0, MOST_HOSTS).map(({ host }) => host),
        };
      },
    }),
    tool({
      name: 'snapshot_create',
      description:
        'Keep the state of /workspace as it is now, before something risky. A person can restore it; you cannot. Unchanged files cost nothing; only your newest snapshots stay.',
      input: z.strictObject({
        label: z
          .string()
          .min(1)
          .max(100)
          .regex(/^[^\p{C}]+$/u, 'no control characters')
          .optional()
          .describe('a few words that say what the state is'),
      }),
      isReading: false,
      rate: WRITES,
      call: async ({ label }, { sessionId, signal }) => {
        const made = await agentSnapshots.create(sessionId, label, signal);
        return { created: made.created, snapshot: shown(snapshotService.view(made.row)) };
      },
    }),
    tool({
      name: 'snapshot_list',
      description: 'The snapshots of this session, newest first.',
      input: z.strictObject({ limit: z.int().min(1).max(50).optional() }),
      isReading: true,
      rate: READS,
      call: ({ limit = 20 }, { sessionId }) => {
        const { snapshots } = snapshotService.list(snapshotService.findSession(sessionId), { limit });
        return { snapshots: snapshots.map(shown) };
      },
    }),
    tool({
      name: 'snapshot_diff',
      description:
        'Which files differ between a snapshot and the workspace as it is now, or a later snapshot.',
      input: z.strictObject({
        from: SnapshotIdSchema,
        to: SnapshotIdSchema.optional().describe('without it, the workspace as it is now'),
        path: z.string().min(1).max(1000).optional().describe('only below this folder of /workspace'),
        limit: z.int().min(1).max(200).optional(),
      }),
      isReading: true,
      rate: WRITES,
      call: async ({ from, to, path, limit = 100 }, { sessionId, signal }) => {
        ownSnapshot(from, sessionId);
        if (to !== undefined) ownSnapshot(to, sessionId);
        const sides = { a: from, b: to ?? 'now', session: sessionId };
        const { changes, totals, nextCursor } = await comparisons.diff({ ...sides, path, limit }, { signal });
        const short = changes.map((one) => ({ path: one.path, kind: one.kind, oldPath: one.oldPath }));
        return { totals, changes: short, isComplete: nextCursor === null };
      },
    }),
    tool({
      name: 'memory_read',
      description:
        'The memory of this session: a short text that outlives conversations, with its version and who wrote it.',
      input: z.strictObject({}),
      isReading: true,
      rate: READS,
      call: (_input, { sessionId }) => memory.show(sessionId) ?? { version: 0, text: '' },
    }),
    tool({
      name: 'memory_write',
      description: `Replace the memory of this session by at most ${MEMORY_BYTES} bytes of text: conventions, open questions, last known results. Read it first, and keep what still holds. It is marked as written by you, and earlier versions stay.`,
      input: z.strictObject({
        text: z.string().max(MEMORY_BYTES),
        ifVersion: z.int().min(0).optional().describe('fails if the memory has another version by now'),
      }),
      isReading: false,
      rate: WRITES,
      call: ({ text, ifVersion }, { sessionId }) => {
        const { version, bytes } = memory.set(sessionId, {
          ...{ text: text.toWellFormed(), ifVersion },
          author: 'agent',
        });
        return { version, bytes };
      },
    }),
    tool({
      name: 'history_search',
      description:
        'Find words in what was said and done in this session, newest first, also before you began.',
      input: z.strictObject({
        text: z.string().min(1).max(200),
        limit: z.int().min(1).max(20).optional(),
      }),
      isReading: true,
      rate: READS,
      call: async ({ text, limit = 10 }, { sessionId, signal }) => {
        const { results } = await conversationSearch.search({ text, limit, sessionId }, signal);
        return {
          results: results.map(({ time, type, turnId, excerpt }) => ({ time, type, turnId, excerpt })),
        };
      },
    }),
    tool({
      name: 'egress_request',
      description:
        'Ask a person to open the network to one host, when a connection was denied. Waits for the answer. Nothing opens without it.',
      input: z.strictObject({
        host: z.string().min(1).max(261).describe('such as api.example.com, or api.example.com:8443'),
        reason: z.string().min(1).max(300).describe('what it is needed for, for the person who decides'),
      }),
      isReading: false,
      rate: READS,
      call: (wanted, { sessionId, signal }) => egressRequests.ask(sessionId, wanted, signal),
    }),
  ];
}

function shown({ id, createdAt, reason, label, files, bytes, changedFiles }: Snapshot) {
  return { id, createdAt, reason, label, files, bytes, changedFiles };
}
