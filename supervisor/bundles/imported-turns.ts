import type { Attachment } from '../../protocol/attachments.ts';
import { ENDED_TURN_STATUSES } from '../../protocol/entities.ts';
import { type TurnChange, changesTurn } from '../../protocol/event-facts.ts';
import type { EventEntry } from '../../protocol/events.ts';
import type { OutputStream } from '../../protocol/turn-events.ts';
import type { Content } from '../../protocol/contents.ts';
import { FRAME_LIMITS } from '../../protocol/wire/limits.ts';
import { nestsDeeperThan } from '../../protocol/wire/untrusted-json.ts';
import type { ProjectedTurn } from '../history/projection.ts';
import { type Json, JsonSchema } from '../store/columns.ts';
import { type NewTurn, TURN_INPUT_BYTES } from '../store/turns.ts';
import { BUNDLE_LIMITS, refusedBundle } from './bundle-format.ts';

export interface OutputPiece {
  readonly stream: OutputStream;
  readonly start: number;
  readonly bytes: number;
  readonly sha256: string;
}

/** A turn as a history records it. */
export interface RecordedTurn {
  readonly id: string;
  createdAt: number;
  startedAt: number | null;
  endedAt: number | null;
  input: Content | null;
  attachments: readonly Attachment[];
  result: Content | null;
  readonly pieces: OutputPiece[];
  /** Durable bytes of each stream. */
  readonly bytes: Record<OutputStream, number>;
}

/** The turns of a history that have ended. Errors: `snapshot_damaged` for one that contradicts itself. */
export function endedTurns(entries: Iterable<EventEntry>): RecordedTurn[] {
  const turns = new Map<string, RecordedTurn>();
  const ended = new Set<string>();
  for (const entry of entries) {
    if (entry.type === 'turn.queued') {
      const { turnId: id, content: input, inputBytes, attachments = [] } = entry.data;
      if (input?.bytes !== inputBytes) throw refusedBundle('its history has a turn without its prompt');
      if (turns.has(id)) throw refusedBundle('its history begins a turn twice');
      turns.set(id, {
        ...{ id, createdAt: entry.at ?? 0, startedAt: null, endedAt: null, input, attachments },
        ...{ result: null, pieces: [] },
        bytes: { stdout: 0, stderr: 0, result: 0 },
      });
      continue;
    }
    if (!changesTurn(entry)) continue;
    const turn = turns.get(entry.data.turnId);
    if (turn === undefined || ended.has(turn.id))
      throw refusedBundle('its history changes a turn that is over');
    applyEntry(turn, entry);
    if (entry.type === 'turn.ended') ended.add(turn.id);
  }
  // One content may stand for the prompts of many turns, each of which is stored with its turn.
  const stored = [...turns.values()].reduce(
    (sum, { input, result }) => sum + (input?.bytes ?? 0) + (result?.bytes ?? 0),
    0,
  );
  if (stored > BUNDLE_LIMITS.promptsBytes) throw refusedBundle('its prompts and results are too large');
  return [...turns.values()].filter(
    ({ id, input }) => ended.has(id) && (input?.bytes ?? 0) <= TURN_INPUT_BYTES,
  );
}

function applyEntry(turn: RecordedTurn, entry: Exclude<TurnChange, { type: 'turn.queued' }>): void {
  switch (entry.type) {
    case 'turn.edited':
      if (entry.data.content.bytes !== entry.data.inputBytes)
        throw refusedBundle('its history has a turn without its prompt');
      turn.input = entry.data.content;
      turn.attachments = entry.data.attachments ?? [];
      return;
    case 'turn.started':
      turn.startedAt = entry.at ?? 0;
      return;
    case 'turn.output': {
      const { stream, offset, bytes, content } = entry.data;
      if (content?.bytes !== bytes || offset !== turn.bytes[stream])
        throw refusedBundle('its history has an output with a gap');
      turn.bytes[stream] += bytes;
      if (bytes > 0) turn.pieces.push({ stream, start: offset, bytes, sha256: content.sha256 });
      return;
    }
    case 'turn.ended':
      if (!ENDED_TURN_STATUSES.has(entry.data.status)) throw refusedBundle('its history has an odd turn');
      turn.endedAt = entry.at ?? 0;
      turn.result = entry.data.outputArtifact ? null : entry.data.content;
      return;
    case 'turn.restarted':
    case 'turn.worker':
    case 'turn.cancelling':
  }
}

/** The row of a turn. `read` gives the bytes of a content. */
export function turnRow(
  sessionId: string,
  recorded: RecordedTurn,
  projected: ProjectedTurn,
  read: (content: Content) => Buffer,
): NewTurn {
  const { inputBytes: _, ...fields } = projected;
  return {
    ...fields,
    sessionId,
    createdAt: recorded.createdAt,
    startedAt: recorded.startedAt,
    endedAt: recorded.endedAt,
    launchedAt: recorded.startedAt,
    input: recorded.input === null ? Buffer.alloc(0) : read(recorded.input),
    output: recorded.result === null ? null : parseResult(read(recorded.result)),
    snapshot: null,
    changes: null,
    attachments: [...recorded.attachments],
  };
}

function parseResult(bytes: Buffer): Json {
  if (nestsDeeperThan(bytes, FRAME_LIMITS.depth)) throw refusedBundle('a result in it nests too deep');
  try {
    return JsonSchema.parse(JSON.parse(bytes.toString('utf8')));
  } catch (cause) {
    throw refusedBundle('a result in it is not JSON', cause);
  }
}
