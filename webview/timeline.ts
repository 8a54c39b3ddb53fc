import type { ConversationItem, MessageRole } from '../protocol/conversation.ts';
import type { LiveText } from './live-texts.ts';

type Item<T extends ConversationItem['type']> = Extract<ConversationItem, { type: T }>;

/** One line or block of the page. `key` stays the same while the row grows. */
export type Row =
  | { readonly kind: 'prompt'; readonly key: string; readonly item: Item<'prompt'> }
  | {
      readonly kind: 'message';
      readonly key: string;
      readonly role: MessageRole;
      readonly text: string;
      /** The contents are longer than `text`; the first that is. */
      readonly cut: string | null;
      readonly isRemoved: boolean;
      readonly isLive: boolean;
    }
  | { readonly kind: 'plan'; readonly key: string; readonly item: Item<'plan'> }
  | { readonly kind: 'tool'; readonly key: string; readonly item: Item<'tool'> }
  | { readonly kind: 'permission'; readonly key: string; readonly item: Item<'permission'> }
  | { readonly kind: 'notice'; readonly key: string; readonly item: Item<'notice'> }
  | { readonly kind: 'mark'; readonly key: string; readonly item: Item<'mark' | 'option' | 'connected'> }
  | {
      readonly kind: 'end';
      readonly key: string;
      readonly item: Item<'end'>;
      readonly usage: Item<'usage'> | null;
    };

export const FILTERS = ['all', 'changes', 'commands', 'questions'] as const;
export type Filter = (typeof FILTERS)[number];

const CHANGING: ReadonlySet<string> = new Set(['edit', 'delete', 'move']);

/** Rows of one item stay the same object, so that a page of 1,500 rows looks only at those that are new. */
const ROWS = new WeakMap<ConversationItem, Row>();

function rowOf(item: ConversationItem, make: () => Row): Row {
  const row = ROWS.get(item) ?? make();
  ROWS.set(item, row);
  return row;
}

/** What the page shows, in order: items that belong together are one row. */
export function timeline(items: readonly ConversationItem[], live: readonly LiveText[]): readonly Row[] {
  const rows: Row[] = [];
  const usages = new Map<string, Item<'usage'>>();
  for (const item of items) if (item.type === 'usage' && item.turnId !== null) usages.set(item.turnId, item);
  const ended = new Set<string>();
  for (const item of items) if (item.type === 'end' && item.turnId !== null) ended.add(item.turnId);
  for (const item of items) {
    const key = String(item.id);
    switch (item.type) {
      case 'message':
        addMessage(rows, item);
        break;
      case 'prompt':
        rows.push(rowOf(item, () => ({ kind: 'prompt', key, item })));
        break;
      case 'plan':
        rows.push(rowOf(item, () => ({ kind: 'plan', key, item })));
        break;
      case 'tool':
        rows.push(rowOf(item, () => ({ kind: 'tool', key, item })));
        break;
      case 'permission':
        rows.push(rowOf(item, () => ({ kind: 'permission', key, item })));
        break;
      case 'notice':
        rows.push(rowOf(item, () => ({ kind: 'notice', key, item })));
        break;
      case 'mark':
      case 'option':
      case 'connected':
        rows.push(rowOf(item, () => ({ kind: 'mark', key, item })));
        break;
      case 'end':
        rows.push({ kind: 'end', key, item, usage: usages.get(item.turnId ?? '') ?? null });
        break;
      case 'usage':
        // In the footer of its turn.
        break;
    }
  }
  for (const text of live) if (!ended.has(text.turnId)) addLive(rows, text);
  return rows;
}

export function matches(row: Row, filter: Filter): boolean {
  switch (filter) {
    case 'all':
      return true;
    case 'changes':
      return (
        row.kind === 'prompt' ||
        row.kind === 'end' ||
        (row.kind === 'tool' && CHANGING.has(row.item.kind)) ||
        (row.kind === 'mark' &&
          row.item.type === 'mark' &&
          row.item.mark !== 'egress' &&
          row.item.mark !== 'check')
      );
    case 'commands':
      return (
        row.kind === 'prompt' ||
        (row.kind === 'tool' && row.item.kind === 'execute') ||
        (row.kind === 'mark' && row.item.type === 'mark' && row.item.mark === 'check')
      );
    case 'questions':
      return row.kind === 'prompt' || row.kind === 'permission';
  }
}

/** A message continues in further items, and output in further pieces: they are one row. */
function addMessage(rows: Row[], item: Item<'message'>): void {
  const key = messageKey(item);
  const last = rows.at(-1);
  const cut = item.cut ? (item.contents[0]?.sha256 ?? null) : null;
  const isRemoved = item.text === null && item.contents.length > 0;
  if (last?.kind === 'message' && last.key.startsWith(`${key} `)) {
    const text = last.text + (item.text ?? '');
    rows[rows.length - 1] = {
      ...last,
      text,
      cut: last.cut ?? cut,
      isRemoved: last.isRemoved || isRemoved,
    };
    return;
  }
  const row = { kind: 'message', role: item.role, text: item.text ?? '', cut, isRemoved } as const;
  rows.push(rowOf(item, () => ({ ...row, key: `${key} ${item.id}`, isLive: false })));
}

function addLive(rows: Row[], live: LiveText): void {
  const key = `${live.turnId} ${live.message} ${live.role}`;
  const index = rows.findLastIndex((row) => row.kind === 'message' && row.key.startsWith(`${key} `));
  const stored = rows[index];
  if (stored?.kind === 'message') {
    rows[index] = { ...stored, text: stored.text + live.text, isLive: true };
    return;
  }
  const row = { kind: 'message', role: live.role, text: live.text, cut: null, isRemoved: false } as const;
  rows.push({ ...row, key: `${key} live`, isLive: true });
}

function messageKey({ turnId, message, role }: Item<'message'>): string {
  return `${turnId ?? ''} ${message ?? 'output'} ${role}`;
}
