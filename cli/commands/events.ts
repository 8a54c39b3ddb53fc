import type { Command } from 'commander';
import { isText } from '../../protocol/contents.ts';
import type { SessionEvent } from '../../protocol/entities.ts';
import type { CheckpointVerification } from '../../protocol/history.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { contentOf, currentType, parseEvent } from '../../protocol/events.ts';
import type { Context } from '../context.ts';
import { EXIT } from '../failure.ts';
import { wholeNumber } from '../option-values.ts';
import { NO_PAGER } from '../pager.ts';
import type { Registry } from '../registry.ts';
import { formatEgressEvent } from '../render/egress.ts';
import { formatJson } from '../render/json.ts';
import { pluralize, truncate, sanitizeLine } from '../render/text.ts';

const PAGE = 1000;
/** More does not fit into a line. */
const SHOWN_BYTES = 1000;
const RECONNECT_MS = 1000;

interface EventsOptions {
  after?: number;
  follow?: boolean;
  type?: string;
  pager?: boolean;
}

export function registerEvents(registry: Registry, group: Command): void {
  const events = registry
    .command(group, {
      usage: 'events <session>',
      description: "print a session's history, oldest first; --json prints one event per line",
      operands: ['session'],
      examples: [
        'holdfast session events default --follow',
        'holdfast session events default --type turn.ended --json',
      ],
    })
    .option('--after <seq>', 'only events after this sequence number', wholeNumber)
    .option('--follow', 'keep printing new events until ^C')
    .option('--type <type>', 'only events of this type')
    .option('--no-pager', NO_PAGER);
  registry.setAction(events, async (context, options: EventsOptions, session: string) =>
    options.follow === true ? follow(context, session, options) : showStored(context, session, options),
  );

  const verify = registry.command(group, {
    usage: 'verify <session>',
    description:
      "verify the hash chain and the contents of a session's history; exits with 1 if one is damaged",
    operands: ['session'],
  });
  registry.setAction(verify, async (context, _options, session: string) => {
    const result = await context.call('session/verify', { session }, { stage: 'Verifying the history' });
    if (context.json) await context.printJson(result);
    else if (result.ok) {
      await context.print(
        `${context.style.green('intact')}: ${pluralize(result.events, 'event')}, head ${result.head}`,
      );
    } else if (result.firstInvalid !== null) {
      await context.print(
        `${context.style.red('broken')} at event ${result.firstInvalid} of ${result.events}`,
      );
    }
    if (!context.json) {
      const { checkpoint, unproven } = result;
      if (checkpoint !== null) await context.print(describeCheckpoint(checkpoint, context));
      for (const what of unproven) await context.print(`not proved: ${what}`);
      const { damaged, removed } = result.contents;
      for (const { seq, sha256, problem } of damaged)
        await context.print(`${context.style.red(problem)}: content ${sha256} of event ${seq}`);
      if (removed > 0) await context.print(`removed on purpose: ${pluralize(removed, 'content')}`);
    }
    return result.ok ? EXIT.done : EXIT.failed;
  });
}

function describeCheckpoint(
  { valid, why, removed, madeAt, seq }: CheckpointVerification,
  { style }: Context,
) {
  const day = madeAt.slice(0, 10);
  return valid
    ? `begins with the signed checkpoint at event ${seq}: ${pluralize(removed, 'earlier event')} were removed on ${day}`
    : `${style.red('not valid')}: the checkpoint at event ${seq}: ${sanitizeLine(why ?? '')}`;
}

async function showStored(context: Context, session: string, options: EventsOptions): Promise<undefined> {
  context.usePager(options.pager);
  const type = options.type === undefined ? {} : { type: options.type };
  let after = options.after ?? 0;
  let shown = 0;
  for (;;) {
    const { events } = await context.call('session/events', { session, after, limit: PAGE, ...type });
    for (const event of events) await showEvent(context, event);
    shown += events.length;
    after = events.at(-1)?.seq ?? after;
    if (events.length < PAGE) break;
  }
  if (shown === 0 && !context.json) await context.print('No events match.');
  return undefined;
}

/** Prints every event after `after` without gaps, across lost connections. After a lost connection it waits for a supervisor and never starts one. */
async function follow(context: Context, session: string, options: EventsOptions): Promise<number> {
  const stopped = Promise.withResolvers<'stopped'>();
  const release = context.handleInterrupts(() => stopped.resolve('stopped'));
  // Resolve the id once, so that renaming the session does not end the stream.
  const { session: found } = await context.call('session/show', { session });
  const place = { after: options.after ?? 0 };
  let start: 'auto' | 'never' = 'auto';
  let lost = false;
  try {
    for (;;) {
      try {
        const watching = watchOnce(context, start, found.id, place, options.type, () => {
          if (lost) void context.printHint('Reconnected to the supervisor');
          lost = false;
        });
        if ((await Promise.race([watching, stopped.promise])) === 'stopped') return EXIT.cancelled;
      } catch (error) {
        if (!isAway(error)) throw error;
      }
      if (!lost) await context.printHint('The supervisor is not running; waiting for it to start');
      lost = true;
      start = 'never';
      const pause = new Promise<'again'>((resolve) => setTimeout(() => resolve('again'), RECONNECT_MS));
      if ((await Promise.race([pause, stopped.promise])) === 'stopped') return EXIT.cancelled;
    }
  } finally {
    release();
  }
}

function isAway(error: unknown): boolean {
  if (!(error instanceof HoldfastError)) return false;
  // Here `not_found` means that no supervisor is running: the session was found before.
  return ['connection_closed', 'shutting_down', 'not_found'].includes(error.code);
}

/** Runs one subscription until its connection ends. Prints events one after the other, at the reader's pace. */
async function watchOnce(
  context: Context,
  start: 'auto' | 'never',
  session: string,
  place: { after: number },
  type: string | undefined,
  onLive: () => void,
): Promise<'lost'> {
  const link = context.client(start);
  const peer = await link.peer();
  let subscription: string | undefined;
  let showing: Promise<void> = Promise.resolve();
  const ended = Promise.withResolvers<'lost'>();
  const show = (event: SessionEvent) => {
    if (event.seq <= place.after) return;
    place.after = event.seq;
    if (type !== undefined && currentType(event.type) !== type) return;
    showing = showing.then(() => showEvent(context, event));
    showing.catch(ended.reject);
  };
  const subscribe = async () => {
    subscription = (await peer.call('session/subscribe', { session, after: place.after })).subscription;
  };
  const stopEvents = peer.onNotification('session/event', (params) => {
    if (params.subscription === subscription) show(params.event);
  });
  const stopResync = peer.onNotification('session/resync', (params) => {
    if (params.subscription === subscription) subscribe().catch(ended.reject);
  });
  try {
    await subscribe();
    onLive();
    void peer.closed.then(() => ended.resolve('lost'));
    return await ended.promise;
  } finally {
    stopEvents();
    stopResync();
  }
}

async function showEvent(context: Context, event: SessionEvent): Promise<void> {
  if (context.json) {
    await context.printJson(event);
    return;
  }
  const { style } = context;
  const seq = String(event.seq).padStart(6);
  const time = event.at.slice(0, 19).replace('T', ' ');
  const start = `${seq}  ${time}  ${sanitizeLine(event.type)}`;
  const decision = event.type === 'egress' ? formatEgressEvent(event.sessionId, event.data) : null;
  const rest = truncate(
    decision?.what ?? `${describe(event)}${await readText(context, event)}`,
    Math.max(20, context.stdout.columns - start.length - 2),
  );
  await context.print(`${style.dim(`${seq}  ${time}`)}  ${style.cyan(sanitizeLine(event.type))}  ${rest}`);
  // Never truncated, because users copy this command.
  const next = decision?.next ?? null;
  if (next !== null)
    await context.print(`${' '.repeat(8)}${style.dim(`to allow it: ${context.command(next)}`)}`);
}

/** The beginning of the output that an event names, for display; empty for other events. */
async function readText(context: Context, event: SessionEvent): Promise<string> {
  if (event.type !== 'turn.output' && event.type !== 'turn.ended') return '';
  const entry = parseEvent(event);
  const content = entry === null ? null : contentOf(entry);
  if (content === null || !isText(content)) return '';
  const params = { session: event.sessionId, id: content.sha256, offset: 0, limit: SHOWN_BYTES };
  try {
    const { bytes } = await context.client().callWithBytes('content/read', params);
    return ` text=${sanitizeLine(bytes.toString('utf8'))}`;
  } catch (error) {
    return ` text=(${HoldfastError.from(error).message})`;
  }
}

/** The data of an event as `name=value`, without null values and contents. */
function describe(event: SessionEvent): string {
  return Object.entries(event.data)
    .filter(([name, value]) => value !== null && name !== 'content')
    .map(([name, value]) => `${sanitizeLine(name)}=${factText(value)}`)
    .join(' ');
}

function factText(value: unknown): string {
  if (typeof value === 'string') return sanitizeLine(value);
  return typeof value === 'number' ? String(Math.round(value * 10) / 10) : formatJson(value);
}
