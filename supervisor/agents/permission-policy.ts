import { posix } from 'node:path';
import type { PermissionOption, ToolKind } from '../../protocol/agent-events.ts';
import type { PermissionRule, Permissions } from '../../protocol/profile.ts';

/** What an agent wants to do, as far as it says. */
export interface Asked {
  readonly kind: ToolKind;
  readonly locations: readonly { readonly path: string }[];
  readonly command: string | null;
}

export type Decision =
  { readonly answer: 'ask' } | { readonly answer: 'allow' | 'reject'; readonly rule: string | null };

/**
 * What a profile says about a request. Rules spare people questions; they are no boundary, because the agent describes its own
 * requests: the sandbox is the boundary.
 */
export function decide(permissions: Permissions, asked: Asked): Decision {
  if (permissions === 'ask') return { answer: 'ask' };
  if (permissions === 'allow') return { answer: 'allow', rule: null };
  const rule = permissions.rules.find((one) => matches(one, asked));
  if (rule === undefined || rule.answer === 'ask') return { answer: 'ask' };
  return { answer: rule.answer, rule: describe(rule) };
}

function matches({ kind, path, command }: PermissionRule, asked: Asked): boolean {
  if (kind !== undefined && kind !== asked.kind) return false;
  if (path !== undefined) {
    if (asked.locations.length === 0) return false;
    if (!asked.locations.every((location) => matchesPath(path, location.path))) return false;
  }
  return command === undefined || (asked.command !== null && matchesCommand(command, asked.command));
}

/** Patterns are relative to /workspace. */
function matchesPath(pattern: string, path: string): boolean {
  const whole = posix.resolve('/workspace', path);
  return whole.startsWith('/workspace/') && matchesWildcard(pattern, whole.slice('/workspace/'.length));
}

/** Characters with which a shell begins another command: what `*` stands for must not have them. */
const SHELL = /[;&|<>$()`\n\r\\]/;

function matchesCommand(pattern: string, command: string): boolean {
  if (SHELL.test(command) && !SHELL.test(pattern)) return false;
  return matchesWildcard(pattern, command);
}

/** `*` stands for any characters. Takes time proportional to the product of the lengths at most. */
export function matchesWildcard(pattern: string, text: string): boolean {
  let at = 0;
  let from = 0;
  let star = -1;
  let resumed = 0;
  while (at < text.length) {
    if (pattern[from] === '*') {
      star = from++;
      resumed = at;
    } else if (pattern[from] === text[at]) {
      from++;
      at++;
    } else if (star !== -1) {
      from = star + 1;
      at = ++resumed;
    } else return false;
  }
  while (pattern[from] === '*') from++;
  return from === pattern.length;
}

function describe({ answer, kind, path, command }: PermissionRule): string {
  const conditions = [kind, path, command].filter((part) => part !== undefined).join(' ');
  return `${answer} ${conditions}`.trim().slice(0, 200);
}

export type Answer = 'allow_once' | 'allow_always' | 'reject_once' | 'reject_always';

const FALLBACKS: Readonly<Record<Answer, readonly Answer[]>> = {
  allow_always: ['allow_always', 'allow_once'],
  allow_once: ['allow_once'],
  reject_always: ['reject_always', 'reject_once'],
  reject_once: ['reject_once', 'reject_always'],
};

/**
 * The option of the agent for an answer: a kind, or the id of an option. A kind that is not offered falls back from always to once,
 * never from reject to allow; null if nothing fits. Agents choose the ids, so one that reads like a kind means the kind.
 */
export function chooseOption(options: readonly PermissionOption[], answer: string): PermissionOption | null {
  if (!Object.hasOwn(FALLBACKS, answer)) return options.find(({ id }) => id === answer) ?? null;
  for (const kind of FALLBACKS[answer as Answer]) {
    // Where several are of the kind, the one that has its name too was meant.
    const option =
      options.find((one) => one.kind === kind && one.id === answer) ??
      options.find((one) => one.kind === kind);
    if (option !== undefined) return option;
  }
  return null;
}
