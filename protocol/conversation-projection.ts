import type { Content } from './contents.ts';
import { CONVERSATION_LIMITS, type ProjectedItem } from './conversation.ts';
import { cutNote } from './history.ts';
import type { SessionEvent } from './entities.ts';
import { noteOf, turnOf } from './event-facts.ts';
import { type EventEntry, contentOf, parseEvent } from './events.ts';
import { snapshotReasonRule } from './snapshot-reasons.ts';

/** The newest item that was stored under a key; undefined for none. */
export type FindItem = (key: string) => ProjectedItem | undefined;

/** An item that is new, or replaces the one with the same id. A later event finds it by its `key`. */
export interface ItemChange {
  readonly key: string | null;
  readonly item: ProjectedItem;
}

/** Longer texts of errors and notices are cut. */
const MAX_TEXT = 2000;
const MAX_TRACEBACK = 8000;

type Type<T extends ProjectedItem['type']> = Extract<ProjectedItem, { type: T }>;
type Data<T extends EventEntry['type']> = Extract<EventEntry, { type: T }>['data'];

/**
 * What an event changes in the conversation. Pure: the same events in the same order give the same items, whoever keeps
 * them. Most events change one item, and many none. Errors: those of `parseEvent`, for an event that nobody of ours wrote.
 */
export function projectEvent(event: SessionEvent, find: FindItem): readonly ItemChange[] {
  const entry = parseEvent(event);
  return entry === null ? [] : changesOf(new Step(event, entry, find), entry);
}

/** One event, and the items that it meets. */
class Step {
  readonly seq: number;
  readonly time: string;
  readonly #content: Content | null;
  readonly #find: FindItem;

  constructor(event: SessionEvent, entry: EventEntry, find: FindItem) {
    this.seq = event.seq;
    this.time = event.at;
    this.#content = contentOf(entry);
    this.#find = find;
  }

  get contents(): Content[] {
    return this.#content === null ? [] : [this.#content];
  }

  find<T extends ProjectedItem['type']>(type: T, key: string): Type<T> | undefined {
    const found = this.#find(key);
    return found?.type === type ? (found as Type<T>) : undefined;
  }

  /** The fields that every item has, for one that begins with this event. */
  begun(turnId: string | null) {
    const { seq, contents } = this;
    return { id: seq, at: seq, seq, time: this.time, turnId, contents };
  }

  /** The same for an item that replaces `earlier`, in its place. */
  replacing(earlier: ProjectedItem | undefined, turnId: string | null) {
    if (earlier === undefined) return this.begun(turnId);
    const { id, at, time } = earlier;
    return { id, at, time, seq: this.seq, turnId, contents: this.contents };
  }
}

function changesOf(step: Step, entry: EventEntry): readonly ItemChange[] {
  switch (entry.type) {
    case 'turn.queued':
      return queued(step, entry.data);
    case 'turn.edited':
      return edited(step, entry.data);
    case 'turn.started':
      return placePrompt(step, entry.data.turnId);
    case 'turn.output':
      return output(step, entry.data);
    case 'turn.ended':
      return ended(step, entry.data);
    case 'agent.message':
      return message(step, entry.data);
    case 'agent.plan': {
      const key = `plan:${entry.data.turnId}`;
      return [
        {
          key,
          item: { ...step.replacing(step.find('plan', key), entry.data.turnId), type: 'plan' },
        },
      ];
    }
    case 'agent.tool': {
      const { turnId, call, kind, status, title, locations } = entry.data;
      const key = `tool:${turnId}:${call}`;
      const base = step.replacing(step.find('tool', key), turnId);
      return [{ key, item: { ...base, type: 'tool', call, kind, status, title, locations } }];
    }
    case 'permission.asked': {
      const { permissionId, turnId, call, kind, title, options } = entry.data;
      return [
        {
          key: `permission:${permissionId}`,
          item: {
            ...step.begun(turnId),
            type: 'permission',
            ...{ permissionId, call, kind, title, options },
            answer: null,
            by: null,
          },
        },
      ];
    }
    case 'permission.answered': {
      const { permissionId, option, by } = entry.data;
      const key = `permission:${permissionId}`;
      const asked = step.find('permission', key);
      return asked === undefined ? [] : [{ key, item: { ...asked, seq: step.seq, answer: option, by } }];
    }
    case 'agent.usage': {
      const { turnId, ...figures } = entry.data;
      const key = `usage:${turnId}`;
      return [
        { key, item: { ...step.replacing(step.find('usage', key), turnId), type: 'usage', ...figures } },
      ];
    }
    default:
      return beside(step, entry);
  }
}

/** Items that no later event changes. */
function beside(step: Step, entry: EventEntry): readonly ItemChange[] {
  const one = (item: ProjectedItem): readonly ItemChange[] => [{ key: null, item }];
  const mark = (turnId: string | null = null) => ({ ...step.begun(turnId), type: 'mark' as const });
  switch (entry.type) {
    case 'agent.option': {
      const { turnId, option, value, by } = entry.data;
      return one({ ...step.begun(turnId), type: 'option', option, value, by });
    }
    case 'agent.notice':
      return one({
        ...step.begun(entry.data.turnId),
        type: 'notice',
        code: entry.data.code,
        message: entry.data.text,
      });
    case 'agent.connected': {
      const { turnId, name, version, how, why } = entry.data;
      const item = { ...step.begun(turnId), type: 'connected' as const, name, version, how, why };
      return [{ key: 'connected', item }];
    }
    case 'turn.restarted':
      return one({ ...mark(entry.data.turnId), mark: 'restarted' });
    case 'snapshot.created': {
      const { snapshotId, reason, label, changedFiles, turnId = null } = entry.data;
      if (snapshotReasonRule(reason).isSilent === true) return [];
      return one({ ...mark(turnId), mark: 'snapshot', snapshotId, reason, label, changedFiles });
    }
    case 'snapshot.failed': {
      const { reason, code, why, turnId = null } = entry.data;
      return one({ ...mark(turnId), mark: 'snapshot-failed', reason, code, why: cut(why, MAX_TEXT) });
    }
    case 'setup.resumed': {
      const { exitCode, timedOut, lastLine } = entry.data;
      if (exitCode === 0 && !timedOut) return [];
      const how = timedOut ? 'took too long' : `ended with ${exitCode ?? 'nothing'}`;
      return one({ ...mark(), mark: 'resume-failed', why: lastLine === '' ? how : `${how}: ${lastLine}` });
    }
    case 'workspace.restored': {
      const { snapshotId, path, undo } = entry.data;
      return one({ ...mark(), mark: 'restored', snapshotId, path, undo });
    }
    case 'workspace.cleaned':
      return one({ ...mark(), mark: 'cleaned', files: entry.data.files });
    case 'egress': {
      const { decision, host, port, reason, count, allow } = entry.data;
      // What was allowed is in the history. Here it would bury the conversation.
      if (decision === 'allowed' || decision === 'ended') return [];
      return one({ ...mark(), mark: 'egress', decision, host, port, reason, count, allow });
    }
    case 'policy.changed':
      return one({ ...mark(), mark: 'policy', ...entry.data });
    case 'session.forked': {
      const { from, snapshotId } = entry.data;
      return one({ ...mark(), mark: 'forked', from, snapshotId });
    }
    case 'memory.changed': {
      const { version, author } = entry.data;
      return one({ ...mark(), mark: 'memory', version, author });
    }
    case 'check.ended': {
      const { name, of, exitCode, ms } = entry.data;
      return one({ ...mark(), mark: 'check', name, of, exitCode, ms });
    }
    case 'history.cut': {
      // One mark for all cuts: it stands where the history begins.
      const key = 'history-cut';
      const item = step.replacing(step.find('mark', key), null);
      const { icon, text: note, isWarning } = cutNote(entry.data, step.time);
      const at = entry.data.seq;
      return [
        { key, item: { ...item, at, time: step.time, type: 'mark', mark: 'note', note, icon, isWarning } },
      ];
    }
    case 'conversation.started-over':
      return [{ key: 'started-over', item: { ...mark(), mark: 'started-over', memory: entry.data.memory } }];
    default: {
      const note = noteOf(entry);
      if (note === null) return [];
      const { icon, text, isWarning } = note;
      return one({ ...mark(turnOf(entry)), mark: 'note', icon, note: cut(text, MAX_TEXT), isWarning });
    }
  }
}

/** A prompt gets its place when its turn starts: until then others are in front of it. */
function queued(step: Step, data: Data<'turn.queued'>): readonly ItemChange[] {
  const { turnId, kind, preview = '', attachments } = data;
  const item: ProjectedItem = {
    ...step.begun(turnId),
    at: 0,
    type: 'prompt',
    kind,
    preview,
    state: 'queued',
    ...(attachments === undefined ? {} : { attachments }),
  };
  return [{ key: promptKey(turnId), item }];
}

/** A prompt that waits keeps its place in the queue. */
function edited(
  step: Step,
  { turnId, preview = '', attachments = [] }: Data<'turn.edited'>,
): readonly ItemChange[] {
  const key = promptKey(turnId);
  const prompt = step.find('prompt', key);
  if (prompt?.state !== 'queued') return [];
  const { attachments: _, ...rest } = prompt;
  const item = { ...rest, seq: step.seq, contents: step.contents, preview };
  return [{ key, item: attachments.length === 0 ? item : { ...item, attachments } }];
}

function placePrompt(step: Step, turnId: string): readonly ItemChange[] {
  const key = promptKey(turnId);
  const prompt = step.find('prompt', key);
  if (prompt?.state !== 'queued') return [];
  return [{ key, item: { ...prompt, at: step.seq, seq: step.seq, state: 'sent' } }];
}

/** Pieces of the same stream are one item, until the other stream says something. */
function output(step: Step, data: Data<'turn.output'>): readonly ItemChange[] {
  const { turnId, stream, offset, bytes } = data;
  // The item of the end has the result.
  if (stream === 'result') return [];
  const key = `output:${turnId}`;
  const open = step.find('message', key);
  const isSame = open?.role === stream && open.start + open.bytes === offset;
  const joined = isSame ? joinedTo(open, step, bytes) : null;
  const item: ProjectedItem = joined ?? {
    ...step.begun(turnId),
    type: 'message',
    role: stream,
    message: null,
    start: offset,
    bytes,
  };
  return [{ key, item }];
}

function message(step: Step, data: Data<'agent.message'>): readonly ItemChange[] {
  const { turnId, role } = data;
  const bytes = data.content?.bytes ?? 0;
  const key = `message:${turnId}:${role}:${data.message}`;
  const open = step.find('message', key);
  const item: ProjectedItem = (open === undefined ? null : joinedTo(open, step, bytes)) ?? {
    ...step.begun(turnId),
    type: 'message',
    role,
    message: data.message,
    start: open === undefined ? 0 : open.start + open.bytes,
    bytes,
  };
  return [{ key, item }];
}

/** The item with another piece at its end; null if it is full. */
function joinedTo(open: Type<'message'>, step: Step, bytes: number): Type<'message'> | null {
  const { pieces, textBytes } = CONVERSATION_LIMITS;
  const [content] = step.contents;
  // Output of an earlier version has no content: its item is one event.
  const isOpen = content !== undefined && open.contents.length > 0 && open.contents.length < pieces;
  if (!isOpen || open.bytes + bytes > textBytes) return null;
  return { ...open, seq: step.seq, contents: [...open.contents, content], bytes: open.bytes + bytes };
}

function ended(step: Step, data: Data<'turn.ended'>): readonly ItemChange[] {
  const { turnId, status, exitCode, error, turnMs } = data;
  const end: ProjectedItem = {
    ...step.begun(turnId),
    type: 'end',
    status,
    exitCode,
    error:
      error === null
        ? null
        : {
            code: error.data.code,
            message: cut(error.message, MAX_TEXT),
            traceback: error.traceback === undefined ? null : cut(error.traceback, MAX_TRACEBACK),
          },
    turnMs,
  };
  // The prompt of a turn that ended in the queue.
  return [...placePrompt(step, turnId), { key: null, item: end }];
}

function promptKey(turnId: string): string {
  return `prompt:${turnId}`;
}

function cut(text: string, characters: number): string {
  return text.length <= characters ? text : `${text.slice(0, characters - 1)}…`;
}
