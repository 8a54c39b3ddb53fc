import type { Attachment } from '../../protocol/attachments.ts';
import type { SessionEvent } from '../../protocol/entities.ts';
import { transcriptOf } from '../../protocol/event-facts.ts';
import { parseEvent } from '../../protocol/events.ts';
import type { EventEntry } from '../../protocol/events.ts';
import { formatDuration } from '../base/format.ts';
import { MAX_CONTENT_BYTES } from './content-reader.ts';
import { sanitizeLines } from './format-event.ts';

/** Of one chunk of output. `holdfast session events` has all of it. */
const MAX_CHUNK_CHARACTERS = 200_000;

/**
 * The transcript's text for an event: a prompt, a chunk of output, or how a turn ended. Empty for other events, which
 * only the history shows. Texts are joined without a separator, because a chunk of output may end in the middle of a
 * line.
 */
export function formatTranscript(event: SessionEvent, text?: string): string {
  const entry = parseEvent(event);
  if (entry === null) return '';
  const { type, data } = entry;
  switch (type) {
    case 'turn.queued':
      return `\n❯ ${truncate(sanitizeLines(text ?? data.preview ?? ''))}   · ${clock(event.at)}\n${attached(data)}`;
    case 'turn.edited':
      return `\n❯ ${truncate(sanitizeLines(text ?? data.preview ?? ''))}   · edited ${clock(event.at)}\n${attached(data)}`;
    case 'turn.output':
      // The end of the turn shows its result.
      if (data.stream === 'result') return '';
      return transcriptOfOutput(data, text ?? data.text);
    case 'turn.ended': {
      const time = data.turnMs === null ? '' : ` after ${formatDuration(data.turnMs)}`;
      const result = resultText(data, text);
      const trace =
        data.error?.traceback === undefined ? '' : `${truncate(sanitizeLines(data.error.traceback))}\n`;
      return `${result}\n— ${ENDINGS[data.status] ?? data.status}${time}${reasonOf(data)}\n${trace}`;
    }
    default: {
      const line = transcriptOf(entry);
      return line === null ? '' : `\n— ${sanitizeLines(line)}\n`;
    }
  }
}

const ENDINGS: Readonly<Record<string, string>> = {
  succeeded: 'Succeeded',
  failed: 'Failed',
  cancelled: 'Cancelled',
  timeout: 'Timed out',
  interrupted: 'Interrupted',
};

type TurnOutput = Extract<EventEntry, { type: 'turn.output' }>['data'];
type TurnEnded = Extract<EventEntry, { type: 'turn.ended' }>['data'];

function reasonOf({ status, error, exitCode }: TurnEnded): string {
  if (status === 'cancelled') return '';
  if (error !== null) return `: ${sanitizeLines(error.message)}`;
  return exitCode === null || exitCode === 0 ? '' : `: exit code ${exitCode}`;
}

function transcriptOfOutput({ bytes, content, artifact }: TurnOutput, text: string | undefined): string {
  if (text !== undefined)
    return `${truncate(sanitizeLines(text))}${bytes > MAX_CONTENT_BYTES && content !== null ? `\n… of ${bytes} bytes\n` : ''}`;
  return artifact === undefined
    ? `\n(${bytes} bytes of output are not text)\n`
    : `\n(${bytes} bytes of output are stored as a file)\n`;
}

function resultText({ output = null }: TurnEnded, text: string | undefined): string {
  if (text === undefined) return output === null ? '' : `${sanitizeLines(JSON.stringify(output, null, 2))}\n`;
  return `${truncate(sanitizeLines(indented(text)))}\n`;
}

/** A truncated value is not JSON and stays as it is. */
function indented(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** In local time. */
function clock(at: string): string {
  return new Date(at).toTimeString().slice(0, 8);
}

function truncate(text: string): string {
  return text.length <= MAX_CHUNK_CHARACTERS
    ? text
    : `${text.slice(0, MAX_CHUNK_CHARACTERS)}\n… ${text.length - MAX_CHUNK_CHARACTERS} more characters\n`;
}

/** A line for each file of a prompt. */
function attached({
  attachments = [],
}: {
  readonly attachments?: readonly Attachment[] | undefined;
}): string {
  return attachments
    .map((one) => `  + ${sanitizeLines(one.kind === 'link' ? one.path : one.name)}\n`)
    .join('');
}
