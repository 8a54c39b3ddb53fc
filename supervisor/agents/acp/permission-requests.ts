import { PERMISSION_KINDS, type PermissionOption } from '../../../protocol/agent-events.ts';
import type { Permissions } from '../../../protocol/profile.ts';
import { type Asked, chooseOption, decide } from '../permission-policy.ts';
import { cutText } from './bounded-text.ts';
import type { SettledPermission } from './effects.ts';
import { PermissionOptionOfAgentSchema } from './wire.ts';

const MAX_OPTIONS = 16;

/** What the profile answers to a request; null: a person is asked. */
export function automaticAnswer(
  permissions: Permissions,
  asked: Asked & { readonly options: readonly PermissionOption[] },
): Pick<SettledPermission, 'option' | 'by'> | null {
  const decision = decide(permissions, asked);
  if (decision.answer === 'ask') return null;
  const option =
    decision.answer === 'allow'
      ? (chooseOption(asked.options, 'allow_once') ?? chooseOption(asked.options, 'allow_always'))
      : chooseOption(asked.options, 'reject_once');
  // An agent that offers no rejection gets `cancelled`; one that offers nothing to allow is a question for a person.
  if (option === null && decision.answer === 'allow') return null;
  const { rule } = decision;
  return { option, by: rule === null ? { kind: 'profile', name: null } : { kind: 'rule', name: rule } };
}

/** The options that a person can choose from: each id once, and none whose id reads like another kind than its own. */
export function optionsOf(items: readonly unknown[]): PermissionOption[] {
  const options: PermissionOption[] = [];
  for (const item of items.slice(0, 4 * MAX_OPTIONS)) {
    const { success, data } = PermissionOptionOfAgentSchema.safeParse(item);
    if (!success || options.length >= MAX_OPTIONS || options.some(({ id }) => id === data.optionId)) continue;
    const { optionId, kind } = data;
    if (optionId !== kind && PERMISSION_KINDS.some((other) => other === optionId)) continue;
    options.push({ id: data.optionId, name: cutText(data.name, 200), kind: data.kind });
  }
  return options;
}

const COMMAND_CHARACTERS = 8192;

/** The command of a tool call, as most agents name it. */
export function commandOf(input: unknown): string | null {
  if (typeof input !== 'object' || input === null) return null;
  const command: unknown = Object.getOwnPropertyDescriptor(input, 'command')?.value;
  const words: unknown = Array.isArray(command)
    ? command.filter((word) => typeof word === 'string').join(' ')
    : command;
  return typeof words === 'string' && words.length <= COMMAND_CHARACTERS ? words : null;
}
