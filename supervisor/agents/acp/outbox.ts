import { cutText } from './bounded-text.ts';
import type { Commit, NewEvent, NewPermission, SettledPermission } from './effects.ts';
import * as requests from './requests.ts';
import type { AcpState, Connection, PendingRequest } from './state.ts';

/** How long an agent may take to answer, ms. `prompt` has the limit of its turn. */
export const DEADLINES_MS = {
  initialize: 60_000,
  new: 60_000,
  resume: 60_000,
  /** From the last update of the replay. */
  load: 60_000,
  set: 20_000,
} as const;

const MAX_NOTICES = 100;
/** What an event costs of the turn's limit of output, at least: a row, two hashes and an index entry. */
const EVENT_BYTES = 1024;

/** What the next commit stores and sends. Events of a turn are charged to it. */
export class Outbox {
  readonly #state: AcpState;
  #events: NewEvent[] = [];
  #asked: NewPermission[] = [];
  #settled: SettledPermission[] = [];
  #lines: Buffer[] = [];

  constructor(state: AcpState) {
    this.#state = state;
  }

  /** Somebody waits for it, or it is much. */
  get isUrgent(): boolean {
    return (
      this.#lines.length > 0 ||
      this.#asked.length > 0 ||
      this.#settled.length > 0 ||
      this.#events.length >= 500
    );
  }

  /** The messages to the agent. */
  get toSend(): { readonly messages: number; readonly bytes: number } {
    return {
      messages: this.#lines.length,
      bytes: this.#lines.reduce((sum, line) => sum + line.length, 0),
    };
  }

  emit(event: NewEvent): void {
    const { turn } = this.#state;
    if (turn !== null) {
      const size = Buffer.byteLength(JSON.stringify(event.data)) + (event.bytes?.length ?? 0);
      turn.storedBytes += Math.max(EVENT_BYTES, size);
      turn.isOverLimit ||= turn.storedBytes > turn.limitBytes;
    }
    this.#events.push(event);
  }

  /** `isRepeated`: more than once in a turn. */
  notice(code: string, text: string, isRepeated = false): void {
    const { turn } = this.#state;
    if (turn === null || turn.notices >= MAX_NOTICES) return;
    // Codes have names of the agent's, and stay in the stored state.
    const kind = cutText(code, 100);
    if (!isRepeated) {
      if (turn.noticed.includes(kind)) return;
      turn.noticed.push(kind);
    }
    turn.notices += 1;
    const last = turn.notices === MAX_NOTICES ? ' (further notices of this turn are left out)' : '';
    this.emit({
      type: 'agent.notice',
      data: { turnId: turn.id, code: kind, text: `${cutText(text, 1900)}${last}` },
      bytes: null,
    });
  }

  ask(permission: NewPermission): void {
    this.#asked.push(permission);
  }

  settle(permission: SettledPermission): void {
    this.#settled.push(permission);
  }

  /** A line to the agent. */
  send(line: Buffer): void {
    this.#lines.push(line);
  }

  request(
    connection: Connection,
    what: PendingRequest['what'],
    request: requests.Request,
    now: number,
    setting: PendingRequest['setting'] = null,
  ): void {
    const id = connection.nextId++;
    connection.pending.push({ id, what, deadline: deadlineOf(what, now), setting });
    this.send(requests.requestLine(id, request));
  }

  /** Its process is gone. */
  dropLines(): void {
    this.#lines = [];
  }

  take(): Commit {
    const commit = { events: this.#events, asked: this.#asked, settled: this.#settled, lines: this.#lines };
    this.#events = [];
    this.#asked = [];
    this.#settled = [];
    this.#lines = [];
    return commit;
  }
}

export function deadlineOf(what: PendingRequest['what'], now: number): number | null {
  return what === 'prompt' ? null : now + DEADLINES_MS[what];
}
