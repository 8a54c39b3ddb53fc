import { type IncomingMessage, STATUS_CODES, validateHeaderName, validateHeaderValue } from 'node:http';
import type { ByteSearch } from './byte-search.ts';
import { endToEnd } from '../../../protocol/http-headers.ts';

const MOST_HEADERS = 200;
/**
 * What is not returned: a session that stands for the credential, and hints at other ways to the server.
 */
const WITHHELD: ReadonlySet<string> = new Set([
  'set-cookie',
  'set-cookie2',
  'alt-svc',
  'authentication-info',
]);

export interface AnswerHead {
  readonly status: number;
  readonly phrase: string;
  /** Name and value in turn. */
  readonly headers: string[];
}

/** What the sandbox gets of the head of an answer; a text says why it gets nothing of it. */
export function answerHead(
  answer: IncomingMessage,
  search: ByteSearch,
): AnswerHead | { readonly refused: 'echo' | 'unsafe_answer'; readonly why: string } {
  const { statusCode: status = 0, statusMessage = '', rawHeaders } = answer;
  const unsafe = (why: string) => ({ refused: 'unsafe_answer', why }) as const;
  if (rawHeaders.length > 2 * MOST_HEADERS) return unsafe('it has too many headers');
  if (status < 200 || status > 599) return unsafe('its status is unknown');
  if (status === 206) return unsafe('it is a part, which was not asked for');
  const encoding = answer.headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity') return unsafe('it is compressed, which was not asked for');
  const said = [statusMessage, ...rawHeaders].map((text) => Buffer.from(text, 'latin1'));
  if (said.some((text) => search.read(text, 0) < 0)) return { refused: 'echo', why: 'it has the credential' };
  const kept = endToEnd(rawHeaders, WITHHELD);
  try {
    for (let at = 0; at + 1 < kept.length; at += 2) {
      validateHeaderName(kept[at] ?? '');
      validateHeaderValue(kept[at] ?? '', kept[at + 1] ?? '');
    }
  } catch {
    return unsafe('a header of it is invalid');
  }
  const phrase = /^[\t\x20-\x7e]{0,200}$/.test(statusMessage) ? statusMessage : (STATUS_CODES[status] ?? '');
  return { status, phrase, headers: kept };
}
