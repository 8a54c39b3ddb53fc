import type { ConversationItem } from '../../protocol/conversation.ts';
import { formatAttachment } from '../attachments.ts';
import { formatDuration } from './quantity.ts';
import type { Style } from './style.ts';
import { sanitizeLine, sanitizeLines } from './text.ts';

type Item<T extends ConversationItem['type']> = Extract<ConversationItem, { type: T }>;

/** An item of a conversation for people. Empty for items that say nothing to them. */
export function formatItem(item: ConversationItem, style: Style): string[] {
  switch (item.type) {
    case 'prompt': {
      const waits = item.state === 'queued' ? style.dim(' (waits)') : '';
      return [
        '',
        ...body(item, item.preview, style).map(
          (line, at) => `${at === 0 ? style.bold('❯') : ' '} ${line}${at === 0 ? waits : ''}`,
        ),
        ...(item.attachments ?? []).map((one) => style.dim(`  + ${formatAttachment(one)}`)),
      ];
    }
    case 'message':
      return message(item, style);
    case 'plan':
      return [style.dim('— plan'), ...plan(item)];
    case 'tool': {
      const where = item.locations
        .map(({ path, line }) => (line === null ? path : `${path}:${line}`))
        .join(', ');
      return [
        `${style.cyan('•')} ${sanitizeLine(item.title === '' ? item.kind : item.title)} ${style.dim(`(${item.kind}, ${item.status})`)}${where === '' ? '' : ` ${sanitizeLine(where)}`}`,
      ];
    }
    case 'permission': {
      const answer =
        item.by === null
          ? style.yellow('waits for an answer')
          : `${item.answer === null ? 'not answered' : sanitizeLine(item.answer.name)}, by ${item.by.kind}${item.by.name === null ? '' : ` ${sanitizeLine(item.by.name)}`}`;
      return [`${style.yellow('?')} ${sanitizeLine(item.title)}: ${answer}`];
    }
    case 'end':
      return end(item, style);
    case 'notice':
      return [style.dim(`— ${sanitizeLine(item.message)}`)];
    case 'connected':
      return [
        style.dim(
          `— ${sanitizeLine(item.name)} ${sanitizeLine(item.version)} is connected (${item.how}${item.why === null ? '' : `: ${sanitizeLine(item.why)}`})`,
        ),
      ];
    case 'option':
      return [style.dim(`— ${sanitizeLine(item.option)} is now ${sanitizeLine(item.value)}`)];
    case 'usage':
      return item.totalTokens === null ? [] : [style.dim(`— ${item.totalTokens} tokens`)];
    case 'mark':
      return [style.dim(`— ${mark(item)}`)];
  }
}

function message(item: Item<'message'>, style: Style): string[] {
  const lines = body(item, '', style);
  // The first line of a further item goes on where the last one ended.
  if (item.role === 'thought') return lines.map((line) => style.dim(line));
  return item.role === 'stderr' ? lines.map((line) => style.yellow(line)) : lines;
}

function body(item: ConversationItem, otherwise: string, style: Style): string[] {
  if (item.text === null) {
    const names = item.contents.map(({ sha256, bytes }) => `${bytes} bytes, content ${sha256}`);
    return [otherwise === '' ? style.dim(`(not shown: ${names.join('; ')})`) : sanitizeLine(otherwise)];
  }
  const lines = sanitizeLines(item.text).replace(/\n$/, '').split('\n');
  if (item.cut) {
    const all = item.contents.reduce((sum, { bytes }) => sum + bytes, 0);
    lines.push(style.dim(`(cut: ${all} bytes in all, content ${item.contents[0]?.sha256 ?? ''})`));
  }
  return lines;
}

function plan({ text }: Item<'plan'>): string[] {
  try {
    const entries: unknown = JSON.parse(text ?? '[]');
    if (!Array.isArray(entries)) return [];
    return entries.slice(0, 100).map((entry: unknown) => {
      const { content = '', status = '' } = (entry ?? {}) as { content?: unknown; status?: unknown };
      return `  ${status === 'completed' ? '✓' : '·'} ${sanitizeLine(String(content))}`;
    });
  } catch {
    // Cut, or not JSON.
    return [];
  }
}

function end({ status, error, exitCode, turnMs, text }: Item<'end'>, style: Style): string[] {
  const time = turnMs === null ? '' : ` after ${formatDuration(turnMs)}`;
  const why =
    error === null
      ? exitCode === null || exitCode === 0
        ? ''
        : `: exit code ${exitCode}`
      : `: ${sanitizeLine(error.message)}`;
  const paint = status === 'succeeded' ? style.dim : style.red;
  return [...(text === null ? [] : sanitizeLines(text).split('\n')), paint(`— ${status}${time}${why}`)];
}

function mark(item: Item<'mark'>): string {
  switch (item.mark) {
    case 'snapshot':
      return `snapshot ${item.snapshotId} (${item.label === null ? item.reason : sanitizeLine(item.label)})`;
    case 'snapshot-failed':
      return `the snapshot failed: ${sanitizeLine(item.why)}`;
    case 'resume-failed':
      return `setup.resume ${sanitizeLine(item.why)}`;
    case 'restored':
      return `the files of ${item.snapshotId} were restored`;
    case 'cleaned':
      return 'the workspace was emptied';
    case 'egress':
      return `${item.decision === 'denied' ? 'denied access to' : 'no connection to'} ${sanitizeLine(item.host)}:${item.port}${item.count > 1 ? ` (${item.count} times)` : ''}`;
    case 'policy':
      return `${item.action === 'allow' ? 'allowed' : 'denied'} ${sanitizeLine(item.host)} (${item.scope})`;
    case 'forked':
      return `forked from ${item.from}`;
    case 'restarted':
      return 'the sandbox was lost; the turn started again in a new one';
    case 'memory':
      return `the ${item.author} changed the memory (version ${item.version})`;
    case 'check': {
      const how = item.exitCode === 0 ? 'passed' : `failed with exit code ${item.exitCode}`;
      const on = item.of === 'accepted' ? ' on the accepted files' : '';
      return `check ${sanitizeLine(item.name)} ${how}${on} after ${formatDuration(item.ms)}`;
    }
    case 'note':
      return sanitizeLine(item.note);
    case 'newer':
      return `${sanitizeLine(item.name)}, which a newer Holdfast recorded: update to read it`;
    case 'started-over':
      return 'the agent started over, with the memory of the session';
  }
}
