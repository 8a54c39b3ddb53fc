import { INLINE_OUTPUT_BYTES } from '../../../protocol/turn-events.ts';
import type { EventEntry } from '../../../protocol/events.ts';
import type { Contents } from '../../history/contents.ts';
import type { EventLog } from '../../history/event-log.ts';
import type { TurnOutput } from '../../history/turn-output.ts';
import type {
  AgentConversationRow,
  AgentConversationRows,
  AgentInput,
  InputSize,
} from '../../store/agent-conversations.ts';
import type { Database } from '../../store/database.ts';
import type { PermissionRows } from '../../store/permissions.ts';
import type { Commit, NewEvent } from './effects.ts';

/** What came on the standard error of the agent's process, for the turn that runs. */
export interface ErrorOutput {
  readonly turnId: string;
  /** Bytes of it that the turn has already. */
  readonly offset: number;
  readonly bytes: Buffer;
}

export interface ConversationStoreOptions {
  readonly database: Database;
  readonly rows: AgentConversationRows;
  readonly permissions: PermissionRows;
  readonly events: EventLog;
  readonly contents: Contents;
  readonly output: TurnOutput;
  readonly now: () => number;
}

/** One step of a conversation: what it stores, and the row that the next supervisor continues from. */
export interface Step {
  readonly commit: Commit;
  readonly row: AgentConversationRow;
  /** Behind the last byte of input that the process has. */
  readonly accepted: number;
  readonly errorOutput: ErrorOutput | null;
  /** The process has ended: what was meant for it is dropped. */
  readonly dropsInput: boolean;
}

/** Stores something else in the transaction of a step. */
export type Beside = () => void;

/** Stores steps of conversations. A step is one transaction: after a crash all of it is there, or none of it was read. */
export class ConversationStore {
  readonly #options: ConversationStoreOptions;

  constructor(options: ConversationStoreOptions) {
    this.#options = options;
  }

  get(sessionId: string): AgentConversationRow | null {
    return this.#options.rows.get(sessionId);
  }

  /** The next messages that the process may not have, in order. */
  input(sessionId: string, accepted: number): AgentInput[] {
    return this.#options.rows.input(sessionId, accepted);
  }

  countInput(sessionId: string, from: number): InputSize {
    return this.#options.rows.countInput(sessionId, from);
  }

  /** What is known of the conversation and what its agent asked; its history has its own time. */
  remove(sessionId: string): void {
    this.#options.rows.remove(sessionId);
    this.#options.permissions.removeOfSession(sessionId);
  }

  /** `beside` comes last. Errors: `no_space`, those of a damaged home, and those of `beside`. */
  save({ commit, row, accepted, errorOutput, dropsInput }: Step, beside?: Beside): void {
    const { database, rows, permissions, events, output, now } = this.#options;
    const { sessionId } = row;
    database.transaction(() => {
      const entries = commit.events.map((event) => this.#entry(sessionId, event));
      rows.put(row);
      rows.removeInput(sessionId, dropsInput ? Number.MAX_SAFE_INTEGER : accepted);
      let start = row.inputOffset;
      for (const line of commit.lines.toReversed()) {
        start -= line.length;
        if (!dropsInput) rows.addInput(sessionId, start, line);
      }
      for (const asked of commit.asked) {
        permissions.insert({
          id: asked.id,
          sessionId,
          turnId: asked.turnId,
          kind: asked.kind,
          title: asked.title,
          locations: [...asked.locations],
          options: [...asked.options],
          askedAt: now(),
        });
      }
      const answeredBefore = new Set<string>();
      for (const { id, option, by } of commit.settled) {
        if (!permissions.markAnswered(id, { answeredAt: now(), answer: option, answeredBy: by }))
          answeredBefore.add(id);
      }
      // A person was faster: that answer counts, and has its event.
      const isOutdated = (entry: EventEntry): boolean =>
        entry.type === 'permission.answered' && answeredBefore.has(entry.data.permissionId);
      events.append(
        sessionId,
        entries.filter((entry) => !isOutdated(entry)),
      );
      if (errorOutput !== null)
        output.store(errorOutput.turnId, 'stderr', errorOutput.offset, errorOutput.bytes);
      beside?.();
    });
  }

  #entry(sessionId: string, { type, data, bytes }: NewEvent): EventEntry {
    if (bytes !== null && 'content' in data && data.content !== null) {
      const { contents } = this.#options;
      const { mediaType } = data.content;
      if (bytes.length <= INLINE_OUTPUT_BYTES) contents.insert(sessionId, bytes, mediaType);
      else contents.append(sessionId, contentFile(data), bytes, mediaType);
    }
    return { type, data } as EventEntry;
  }
}

/** The file of a turn's large contents. */
function contentFile(data: NewEvent['data']): string {
  return 'turnId' in data && data.turnId !== null ? `${data.turnId}.agent` : 'agent';
}
