import { isDeepStrictEqual } from 'node:util';
import type { Content } from '../../../protocol/contents.ts';
import { cutJson, cutText } from './bounded-text.ts';
import { type NewEvent, contentOfJson } from './effects.ts';
import type { AgentTurn, Tool } from './state.ts';
import { type ToolUpdate, locationsOf, statusOf } from './wire.ts';

const MAX_CALLS = 1000;
const TITLE_CHARACTERS = 500;
/** Bytes of the stored input, diffs and output of a call. */
const DETAIL_BYTES = 2 ** 20;
/** Details of all open calls that are kept in memory. */
const KEPT_BYTES = 16 * 2 ** 20;

/** The parts that an update replaces as a whole. */
interface Details {
  readonly rawInput?: unknown;
  readonly content?: unknown;
  readonly rawOutput?: unknown;
  /** Bytes of the messages that they came in. */
  readonly size: number;
}

/**
 * The tool calls of a turn. A new call is an event at once; its changes are collected and stored together, so that an agent that
 * reports every byte of a command's output does not have all of it stored each time.
 */
export class ToolCalls {
  readonly #turn: AgentTurn;
  readonly #details = new Map<string, Details>();
  readonly #changed = new Set<string>();
  /** Calls whose input, diffs or output differ from what is stored. */
  readonly #changedDetails = new Set<string>();

  constructor(turn: AgentTurn) {
    this.#turn = turn;
  }

  get hasChanges(): boolean {
    return this.#changed.size > 0 || this.#changedDetails.size > 0;
  }

  /** Applies an update of `size` bytes. Returns the event of a new call, null for a known one, and false if there are too many. */
  apply(update: ToolUpdate, size: number): NewEvent | null | false {
    const { tools } = this.#turn;
    const id = update.toolCallId.toWellFormed();
    const known = Object.hasOwn(tools, id) ? tools[id] : undefined;
    if (known === undefined && Object.keys(tools).length >= MAX_CALLS) return false;
    const before: Tool = known ?? {
      kind: 'other',
      status: 'pending',
      title: '',
      locations: [],
      content: null,
    };
    const tool: Tool = {
      kind: update.kind ?? before.kind,
      status: update.status === undefined || update.status === null ? before.status : statusOf(update.status),
      title:
        update.title === undefined || update.title === null
          ? before.title
          : cutText(update.title, TITLE_CHARACTERS),
      locations:
        update.locations === undefined || update.locations === null
          ? before.locations
          : locationsOf(update.locations),
      content: before.content,
    };
    // Not an assignment: a call may be named `__proto__`.
    Object.defineProperty(tools, id, { value: tool, enumerable: true, configurable: true, writable: true });
    this.#merge(id, update, size);
    if (known === undefined || !isDeepStrictEqual(known, tool)) this.#changed.add(id);
    return known === undefined ? this.#event(id) : null;
  }

  /** The events of calls that changed since the last time. */
  takeEvents(): NewEvent[] {
    const events = [...new Set([...this.#changed, ...this.#changedDetails])].flatMap(
      (id) => this.#event(id) ?? [],
    );
    this.#forgetDetails();
    return events;
  }

  /** What a call does, if an update named it. */
  get(id: string): Tool | null {
    return Object.hasOwn(this.#turn.tools, id) ? (this.#turn.tools[id] ?? null) : null;
  }

  #merge(id: string, { rawInput, rawOutput, content }: ToolUpdate, size: number): void {
    if (rawInput === undefined && rawOutput === undefined && (content === undefined || content === null))
      return;
    const before = this.#details.get(id);
    this.#details.set(id, {
      ...before,
      ...(rawInput === undefined ? {} : { rawInput }),
      ...(rawOutput === undefined ? {} : { rawOutput }),
      ...(content === undefined || content === null ? {} : { content }),
      size: Math.max(before?.size ?? 0, size),
    });
    this.#changedDetails.add(id);
  }

  /** Null if nothing of it differs from what is stored. */
  #event(id: string): NewEvent | null {
    const tool = this.get(id);
    let isChanged = this.#changed.delete(id);
    if (tool === null) return null;
    let bytes: Buffer | null = null;
    let { content }: { content: Content | null } = tool;
    const details = this.#details.get(id);
    if (details !== undefined && this.#changedDetails.delete(id)) {
      const { size: _size, ...parts } = details;
      const stored = contentOfJson(cutJson(parts, DETAIL_BYTES));
      if (stored.content.sha256 !== content?.sha256) {
        ({ content, bytes } = stored);
        isChanged = true;
      }
      tool.content = content;
    }
    if (!isChanged) return null;
    const { kind, status, title, locations } = tool;
    return {
      type: 'agent.tool',
      data: { turnId: this.#turn.id, call: id, kind, status, title, locations, content },
      bytes,
    };
  }

  /** Ended calls rarely change again; if one does, its event has what came since. */
  #forgetDetails(): void {
    let total = 0;
    for (const [id, { size }] of this.#details) {
      const status = this.get(id)?.status;
      const isOpen = status === 'pending' || status === 'in_progress';
      total += size;
      if (!isOpen || total > KEPT_BYTES) this.#details.delete(id);
    }
  }
}
