import type { Command } from 'commander';
import type { ConversationItem, SearchResult } from '../../protocol/conversation.ts';
import type { Result } from '../../protocol/methods.ts';
import type { Context } from '../context.ts';
import { positiveInteger } from '../option-values.ts';
import type { Registry } from '../registry.ts';
import { formatItem } from '../render/conversation.ts';
import { formatRelativeTime } from '../render/quantity.ts';
import { quoteForShell, sanitizeLine } from '../render/text.ts';

const PAGE = 200;

/** Prints a whole conversation, oldest item first, page by page. With `--json` an item per line. */
export async function showConversation(context: Context, session: string): Promise<void> {
  let after: string | null = '0.0';
  let isEmpty = true;
  while (after !== null) {
    const page: Result<'conversation/read'> = await context.call('conversation/read', {
      session,
      after,
      limit: PAGE,
    });
    ({ after } = page);
    // What waits in the queue comes after everything else.
    const items = after === null ? [...page.items, ...page.queued] : page.items;
    for (const item of items) await showItem(context, item);
    isEmpty &&= items.length === 0;
  }
  if (isEmpty && !context.json) await context.print('The conversation is empty.');
}

async function showItem(context: Context, item: ConversationItem): Promise<void> {
  if (context.json) await context.printJson(item);
  else await context.print(...formatItem(item, context.style));
}

interface SearchOptions {
  session?: string;
  profile?: string;
  limit?: number;
  cursor?: string;
}

export function registerSearch(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'search <text>',
      description: 'find words in conversations, newest first; the last word may be incomplete',
      examples: [
        'holdfast session search "invoice import"',
        'holdfast session search tabs --session default',
      ],
    })
    .option('--session <session>', 'only in this session')
    .option('--profile <profile>', 'only in sessions of this profile')
    .option('--limit <n>', 'maximum number of results (1 to 100)', positiveInteger(100))
    .option('--cursor <cursor>', 'continue after an earlier page');
  registry.setAction(command, async (context, options: SearchOptions, text: string) => {
    const { session, profile, limit = 20 } = options;
    const results: SearchResult[] = [];
    let { cursor } = options;
    let complete: boolean;
    do {
      const page: Result<'session/search'> = await context.call('session/search', {
        text,
        limit: limit - results.length,
        ...(session === undefined ? {} : { session }),
        ...(profile === undefined ? {} : { profile }),
        ...(cursor === undefined ? {} : { cursor }),
      });
      results.push(...page.results);
      cursor = page.cursor ?? undefined;
      ({ complete } = page);
    } while (cursor !== undefined && results.length < limit);
    if (context.json) {
      await context.printJson({ results, cursor: cursor ?? null, complete });
      return undefined;
    }
    const { style } = context;
    for (const { sessionName, profile: of, type, time, excerpt } of results) {
      const where = `${sanitizeLine(of)}/${sanitizeLine(sessionName)}`;
      await context.print(
        `${style.bold(where)}  ${style.dim(`${sanitizeLine(type)}, ${formatRelativeTime(time, context.io.now())}`)}`,
        `  ${sanitizeLine(excerpt)}`,
      );
    }
    if (results.length === 0) await context.print('Nothing was found.');
    if (cursor !== undefined) await context.printHint(`More results: --cursor ${quoteForShell(cursor)}`);
    if (!complete) await context.printHint('Conversations of an earlier version are still being indexed');
    return undefined;
  });
}
