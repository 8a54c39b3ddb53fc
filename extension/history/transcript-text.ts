import type { SessionEvent } from '../../protocol/entities.ts';
import { parseEvent } from '../../protocol/events.ts';
import { sanitizeLines } from './history-text.ts';

/** Of one piece of output. A turn's whole output is in its history and on the command line. */
const LONGEST_PIECE = 200_000;

/**
 * What a person reads to follow an agent: prompts, output as it comes, and how each turn ended. Empty for everything else, which the history
 * has. Pieces are put together without anything between them, since output may come in the middle of a line.
 */
export function formatTranscript(event: SessionEvent): string {
  const entry = parseEvent(event);
  if (entry === null) return '';
  const { type, data } = entry;
  switch (type) {
    case 'turn.queued':
      return `\n❯ ${sanitizeLines(data.preview)}   · ${clock(event.at)}\n`;
    case 'turn.output':
      if (data.text !== undefined) return cut(sanitizeLines(data.text));
      return data.base64 === undefined
        ? `\n(${data.bytes} bytes of output are kept as a file)\n`
        : `\n(${data.bytes} bytes of output are not text)\n`;
    case 'turn.restarted':
      return '\n— Its sandbox ended; the turn begins again in a new one\n';
    case 'turn.cancelling':
      return '\n— Cancelling\n';
    case 'turn.ended': {
      const time = data.turnMs === null ? '' : ` after ${duration(data.turnMs)}`;
      const result = data.output === null ? '' : `${sanitizeLines(JSON.stringify(data.output, null, 2))}\n`;
      const says = data.status === 'cancelled' ? null : data.error;
      const why =
        says === null
          ? data.status === 'cancelled'
            ? ''
            : exit(data.exitCode)
          : `: ${sanitizeLines(says.message)}`;
      const trace =
        data.error?.traceback === undefined ? '' : `${cut(sanitizeLines(data.error.traceback))}\n`;
      return `${result}\n— ${ENDED[data.status] ?? data.status}${time}${why}\n${trace}`;
    }
    case 'egress':
      return data.decision === 'denied'
        ? `\n— Not let out to ${sanitizeLines(data.host)}:${data.port}\n`
        : '';
    case 'workspace.restored':
      return '\n— The workspace was restored from a snapshot\n';
    default:
      return '';
  }
}

const ENDED: Readonly<Record<string, string>> = {
  succeeded: 'Succeeded',
  failed: 'Failed',
  cancelled: 'Cancelled',
  timeout: 'Took too long and was ended',
  interrupted: 'Interrupted',
};

function exit(code: number | null): string {
  return code === null || code === 0 ? '' : `: exit code ${code}`;
}

function duration(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** Of this machine, as a person's watch shows it. */
function clock(at: string): string {
  return new Date(at).toTimeString().slice(0, 8);
}

function cut(text: string): string {
  return text.length <= LONGEST_PIECE
    ? text
    : `${text.slice(0, LONGEST_PIECE)}\n… ${text.length - LONGEST_PIECE} more characters\n`;
}
