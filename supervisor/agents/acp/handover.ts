import type { ConversationReader } from '../../conversation/conversation-reader.ts';

/** The newest items, and bytes of them, that an agent without memory is told. */
const ITEMS = 200;
const BYTES = 64 * 1024;
/** Every kind of line end, for whoever reads the text. */
const LINE_END = /\r\n|[\n\v\f\r\u0085\u2028\u2029]/u;

/**
 * What an agent without memory is told of the conversation before a turn: its newest part, oldest item first. Null if there was
 * none. Every line that a person or an agent wrote begins with `| `, so that none can pass for ours.
 */
export async function handoverText(
  reader: Pick<ConversationReader, 'page'>,
  sessionId: string,
  turnId: string,
): Promise<string | null> {
  const { items } = await reader.page(sessionId, { limit: ITEMS });
  const sections: string[] = [];
  let left = BYTES;
  for (const item of items.toReversed()) {
    if (item.turnId === turnId) continue;
    const section = sectionOf(item);
    if (section === null) continue;
    left -= Buffer.byteLength(section);
    if (left < 0) break;
    sections.push(section);
  }
  if (sections.length === 0) return null;
  return `You have had this conversation before and do not remember it. Its newest part, from its history:\n\n${sections.toReversed().join('\n')}\nGo on from here.`;
}

type Item = Awaited<ReturnType<ConversationReader['page']>>['items'][number];

function sectionOf(item: Item): string | null {
  if (item.type === 'prompt') return `Prompt:\n${quoted(item.text ?? item.preview)}`;
  if (item.type === 'message' && item.role === 'agent') return `You:\n${quoted(item.text ?? '')}`;
  if (item.type === 'tool') return `You used a tool (${item.kind}, ${item.status}):\n${quoted(item.title)}`;
  return null;
}

function quoted(text: string): string {
  return text
    .split(LINE_END)
    .map((line) => `| ${line}\n`)
    .join('');
}
