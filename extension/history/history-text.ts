import type { SessionEvent } from '../../protocol/entities.ts';
import { parseEvent } from '../../protocol/events.ts';
import type { EventEntry } from '../../protocol/events.ts';

const LONGEST_LINE = 2_000;
const MOST_LINES = 200;
// Controls but for the line end, and what reorders text or hides in it.
const HIDDEN = /[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu;

/** An event as lines of text: when, what, and what of it a person wants to know. Output follows, one bar before each line. */
export function formatEvent(event: SessionEvent): string {
  const entry = parseEvent(event);
  const head = `${event.at.slice(0, 10)} ${event.at.slice(11, 23)}  ${event.type.padEnd(20)}`;
  if (entry === null) return `${head} ${short(JSON.stringify(event.data))}`;
  const { line, block } = told(entry);
  const body = block === undefined ? '' : `\n${barred(block)}`;
  return `${`${head} ${short(line)}`.trimEnd()}${body}`;
}

interface Told {
  readonly line: string;
  readonly block?: string;
}

function told(entry: EventEntry): Told {
  const { type, data } = entry;
  switch (type) {
    case 'session.status':
      return { line: `${data.from} → ${data.to} (${data.why})` };
    case 'turn.queued':
      return { line: `${data.turnId}  ${data.kind}, ${data.inputBytes} bytes`, block: data.preview };
    case 'turn.started':
      return { line: `${data.turnId}  ${data.case}` };
    case 'turn.output':
      return {
        line: `${data.turnId}  ${data.stream}, ${data.bytes} bytes from ${data.offset}`,
        block: data.text ?? (data.base64 === undefined ? '(kept as a file)' : '(not text)'),
      };
    case 'turn.ended': {
      const how = `${data.turnId}  ${data.status}${data.turnMs === null ? '' : ` in ${Math.round(data.turnMs)} ms`}`;
      const why = data.error === null ? '' : `: ${data.error.message}`;
      const block = data.error?.traceback ?? (data.output === null ? undefined : JSON.stringify(data.output));
      return block === undefined ? { line: how + why } : { line: how + why, block };
    }
    case 'snapshot.created': {
      const what = data.label ?? data.reason.replace('-', ' ');
      return { line: `${data.snapshotId}  ${what}: ${data.files} files, ${data.changedFiles} changed` };
    }
    case 'egress': {
      const why = data.reason === null ? '' : ` (${data.reason})`;
      const times = data.count === 1 ? '' : ` × ${data.count}`;
      return { line: `${data.decision} ${data.method} ${data.host}:${data.port}${why}${times}` };
    }
    default:
      return { line: facts(data) };
  }
}

function facts(data: object): string {
  return Object.entries(data)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ');
}

function barred(text: string): string {
  const lines = sanitizeLines(text.endsWith('\n') ? text.slice(0, -1) : text).split('\n');
  const shown = lines.slice(0, MOST_LINES).map((line) => `    │ ${cut(line)}`);
  const rest = lines.length - shown.length;
  return [...shown, ...(rest > 0 ? [`    │ … ${rest} more lines`] : [])].join('\n');
}

function short(text: string): string {
  return cut(sanitizeLines(text).replace(/\s+/g, ' '));
}

function cut(line: string): string {
  return line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)}…` : line;
}

/** Text of an agent with its line ends and tabs; every other control character, and what reorders text, is spelled out. */
export function sanitizeLines(text: string): string {
  return text
    .replaceAll('\r\n', '\n')
    .replace(HIDDEN, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}
