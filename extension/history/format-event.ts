import type { SessionEvent } from '../../protocol/entities.ts';
import { lineOf } from '../../protocol/event-facts.ts';
import { parseEvent } from '../../protocol/events.ts';
import type { EventEntry } from '../../protocol/events.ts';

const MAX_LINE_CHARACTERS = 2_000;
const MAX_LINES = 200;
// Control characters except line feed and tab, line separators, and characters that reorder text or are invisible.
const HIDDEN = /[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu;

/**
 * An event as text: one line with time, type and a summary. The content that it names follows, if it is text,
 * with a bar before each line.
 */
export function formatEvent(event: SessionEvent, text?: string): string {
  const entry = parseEvent(event);
  const head = `${event.at.slice(0, 10)} ${event.at.slice(11, 23)}  ${event.type.padEnd(20)}`;
  if (entry === null) return `${head} ${oneLine(JSON.stringify(event.data))}`;
  const { line, block } = summarize(entry, text);
  const body = block === undefined ? '' : `\n${indent(block)}`;
  return `${`${head} ${oneLine(line)}`.trimEnd()}${body}`;
}

interface Summary {
  readonly line: string;
  readonly block?: string;
}

function withBlock(line: string, block: string | undefined): Summary {
  return block === undefined ? { line } : { line, block };
}

function summarize(entry: EventEntry, text: string | undefined): Summary {
  const { type, data } = entry;
  switch (type) {
    case 'turn.queued':
      return withBlock(`${data.turnId}  ${data.kind}, ${data.inputBytes} bytes`, text ?? data.preview);
    case 'turn.edited':
      return withBlock(`${data.turnId}  ${data.inputBytes} bytes`, text ?? data.preview);
    case 'turn.output':
      return {
        line: `${data.turnId}  ${data.stream}, ${data.bytes} bytes from ${data.offset}`,
        block: text ?? data.text ?? (data.artifact === undefined ? '(not text)' : '(stored as a file)'),
      };
    case 'turn.ended': {
      const end = `${data.turnId}  ${data.status}${data.turnMs === null ? '' : ` in ${Math.round(data.turnMs)} ms`}`;
      const why = data.error === null ? '' : `: ${data.error.message}`;
      const output = data.output ?? null;
      const block = data.error?.traceback ?? text ?? (output === null ? undefined : JSON.stringify(output));
      return withBlock(end + why, block);
    }
    default:
      return { line: lineOf(entry) };
  }
}

function indent(text: string): string {
  const lines = sanitizeLines(text.endsWith('\n') ? text.slice(0, -1) : text).split('\n');
  const shown = lines.slice(0, MAX_LINES).map((line) => `    │ ${truncate(line)}`);
  const rest = lines.length - shown.length;
  return [...shown, ...(rest > 0 ? [`    │ … ${rest} more lines`] : [])].join('\n');
}

function oneLine(text: string): string {
  return truncate(sanitizeLines(text).replace(/\s+/g, ' '));
}

function truncate(line: string): string {
  return line.length > MAX_LINE_CHARACTERS ? `${line.slice(0, MAX_LINE_CHARACTERS)}…` : line;
}

/**
 * Text of an agent with its line feeds and tabs. Other control characters, and those that reorder text, become `\u{…}`.
 */
export function sanitizeLines(text: string): string {
  return text
    .replaceAll('\r\n', '\n')
    .replace(HIDDEN, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}
