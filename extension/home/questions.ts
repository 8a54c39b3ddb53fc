import type { Permission } from '../../protocol/permissions.ts';
import { MAX_ANSWERS, MAX_QUESTIONS } from '../../webview/home-messages.ts';
import type { HomeQuestion } from '../../webview/home-messages.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { optionLabels, permissionLabels } from '../inbox/permission-labels.ts';

/** Permissions that are looked at for how many wait. */
const MAX_COUNTED = 100;
const MAX_ID = 200;

/** What the agent of a session asks and nobody has answered, the oldest first. */
export async function questionsOf(
  host: HostConnection,
  session: string,
): Promise<{ readonly questions: HomeQuestion[]; readonly moreQuestions: number }> {
  const { permissions } = await host.call('permission/list', { session, limit: MAX_COUNTED });
  return {
    questions: permissions.slice(0, MAX_QUESTIONS).map(questionOf),
    moreQuestions: Math.max(0, permissions.length - MAX_QUESTIONS),
  };
}

/** With all its answers: without those at the end, which reject, a person could only allow. */
export function questionOf(permission: Permission): HomeQuestion {
  const { label, detail } = permissionLabels(permission, Date.now());
  const answers = optionLabels(permission.options)
    .filter(({ option }) => option.id.length <= MAX_ID)
    .slice(0, MAX_ANSWERS)
    .map(({ label: name, description, option: { id, kind } }) => ({
      ...{ id, label: name, effect: description, isAllowing: kind.startsWith('allow') },
    }));
  return { id: permission.id, title: label, about: detail ?? null, answers };
}
