import type { ConversationItem } from '../../../protocol/conversation.ts';
import type { ConversationPage, PageState } from '../../../webview/messages.ts';
import { session } from '../../unit/extension/a-session.ts';

export const TURN = 'turn-aaaaaaaaaaaaaaaa';
export const NEXT_TURN = 'turn-bbbbbbbbbbbbbbbb';
export const PERMISSION = 'perm-aaaaaaaaaaaaaaaa';
export const SNAPSHOT = 'snp-aaaaaaaaaaaaaaaa';
export const CONTENT = { sha256: 'a'.repeat(64), bytes: 100, mediaType: 'application/json' };

type Type = ConversationItem['type'];
type Fields<T extends Type> = Omit<
  Extract<ConversationItem, { type: T }>,
  'id' | 'at' | 'seq' | 'time' | 'turnId' | 'contents' | 'text' | 'cut' | 'type'
> &
  Partial<Pick<ConversationItem, 'turnId' | 'contents' | 'text' | 'cut'>>;

/** An item at its place; `seq` is its id. */
export function item<T extends Type>(id: number, type: T, fields: Fields<T>): ConversationItem {
  const time = new Date(Date.now() - 60_000).toISOString();
  const common = { id, at: id, seq: id, time, turnId: TURN, contents: [], text: null, cut: false };
  return { ...common, ...fields, type } as unknown as ConversationItem;
}

export const message = (
  id: number,
  text: string,
  role: 'agent' | 'thought' | 'stdout' | 'stderr' = 'agent',
) =>
  item(id, 'message', {
    role,
    message: role === 'stdout' || role === 'stderr' ? null : id,
    start: 0,
    bytes: text.length,
    text,
  });
export const prompt = (id: number, text: string, more: Partial<Fields<'prompt'>> = {}) =>
  item(id, 'prompt', { kind: 'acp', preview: text.split('\n', 1)[0] ?? '', state: 'sent', text, ...more });

export function page(items: ConversationItem[], more: Partial<ConversationPage> = {}): ConversationPage {
  return {
    items,
    before: null,
    after: null,
    queued: [],
    total: items.length,
    seq: items.at(-1)?.seq ?? 0,
    ...more,
  };
}

export function state(more: Partial<PageState> = {}): PageState {
  return {
    session: session({ name: 'parser', profile: 'claude', lastSeq: 40 }),
    isDeleted: false,
    host: 'connected',
    why: null,
    input: 'prompt',
    ...more,
  };
}

export const running = (more: Parameters<typeof session>[0] = {}): PageState =>
  state({
    session: session({ name: 'parser', profile: 'claude', status: 'active', runningTurn: TURN, ...more }),
  });

const ANSWER = `The parser drops the last row because the loop ends **before** the buffer is flushed.

## What I changed

1. \`src/parser.ts\` flushes after the loop – see [parser.ts](/workspace/src/parser.ts:42).
2. A test for files *without* a final newline.

\`\`\`ts
for (const line of lines) rows.push(parse(line));
flush(rows);
\`\`\`

| case | before | after |
|---|---|---|
| final newline | 10 rows | 10 rows |
| no final newline | 9 rows | 10 rows |

> All 42 tests pass.
`;

export const permission = (id: number) =>
  item(id, 'permission', {
    permissionId: PERMISSION,
    call: 'call-3',
    kind: 'execute',
    title: 'npm install --save-dev fast-check',
    options: [
      { id: 'yes', name: 'Allow', kind: 'allow_once' },
      { id: 'always', name: 'Always Allow', kind: 'allow_always' },
      { id: 'no', name: 'Reject', kind: 'reject_once' },
    ],
    answer: null,
    by: null,
  });

const tool = (
  id: number,
  fields: Partial<Fields<'tool'>> & Pick<Fields<'tool'>, 'kind' | 'title' | 'status'>,
) => item(id, 'tool', { call: `call-${id}`, locations: [], contents: [CONTENT], ...fields });

/** One of everything, as an agent with the Agent Client Protocol makes it. */
export const RICH: ConversationItem[] = [
  item(1, 'connected', { name: 'Claude', version: '1.4.2', how: 'resumed', why: null }),
  item(2, 'mark', {
    mark: 'snapshot',
    snapshotId: SNAPSHOT,
    reason: 'before-turn',
    label: null,
    changedFiles: 3,
  } as Fields<'mark'>),
  prompt(3, 'The CSV parser loses the last row.\nFind out why, and add a test.'),
  message(
    4,
    'The person says the last row is lost. I should look at how the loop ends and what happens to the buffer.',
    'thought',
  ),
  item(5, 'plan', {
    text: JSON.stringify([
      { content: 'Reproduce the fault', status: 'completed', priority: 'high' },
      { content: 'Flush the buffer after the loop', status: 'in_progress', priority: 'high' },
      { content: 'Add a test', status: 'pending', priority: 'medium' },
    ]),
  }),
  tool(6, {
    kind: 'read',
    title: 'Read parser.ts',
    status: 'completed',
    locations: [{ path: '/workspace/src/parser.ts', line: 30 }],
  }),
  tool(7, {
    kind: 'edit',
    title: 'Edit parser.ts',
    status: 'completed',
    locations: [{ path: '/workspace/src/parser.ts', line: 42 }],
  }),
  tool(8, { kind: 'execute', title: 'npm test', status: 'failed' }),
  item(9, 'mark', {
    mark: 'egress',
    decision: 'denied',
    host: 'registry.npmjs.org',
    port: 443,
    reason: null,
    count: 3,
    allow: 'registry.npmjs.org',
  } as unknown as Fields<'mark'>),
  message(10, ANSWER),
  item(11, 'usage', {
    contextUsed: null,
    contextSize: null,
    inputTokens: null,
    outputTokens: null,
    totalTokens: 18_204,
    cost: { amount: 0.12, currency: 'USD' },
  }),
  item(12, 'end', { status: 'succeeded', exitCode: 0, error: null, turnMs: 74_200 }),
];

export const DETAILS = JSON.stringify({
  content: [
    {
      type: 'diff',
      path: '/workspace/src/parser.ts',
      oldText: 'for (const line of lines) {\n  rows.push(parse(line));\n}\n',
      newText: 'for (const line of lines) {\n  rows.push(parse(line));\n}\nflush(rows);\n',
    },
    { type: 'content', content: { type: 'text', text: 'The file has been updated.' } },
  ],
  rawInput: { file_path: '/workspace/src/parser.ts' },
});
