import { randomUUID } from 'node:crypto';
import { CancellationTokenSource, ThemeIcon, window } from 'vscode';
import type { PermissionOption } from '../../protocol/agent-events.ts';
import type { Permission } from '../../protocol/permissions.ts';
import { sanitize } from '../base/sanitize.ts';
import { whyTooLate } from '../base/too-late.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import type { Host } from '../connection/host.ts';
import { optionLabels, permissionLabels, permissionSession, permissionTitle } from './permission-labels.ts';

/** How long the status bar shows what was answered. */
const SHOWN_MS = 10_000;

/** The one of several permissions that a person picks; the only one without asking. */
export async function pickPermission(permissions: readonly Permission[]): Promise<Permission | undefined> {
  if (permissions.length <= 1) return permissions[0];
  const now = Date.now();
  const items = permissions.map((permission) => ({ ...permissionLabels(permission, now), permission }));
  const picked = await window.showQuickPick(items, {
    title: 'Answer Permission',
    placeHolder: 'Choose what to answer',
    matchOnDescription: true,
    matchOnDetail: true,
  });
  return picked?.permission;
}

/**
 * Asks a person for the answer, and gives it to the host that asked. The question closes when the permission is answered elsewhere, which the
 * person is told. Returns the kind of the answer; undefined where this gave none.
 */
export async function askAndAnswer(
  connection: HostConnection,
  host: Host,
  permission: Permission,
): Promise<PermissionOption['kind'] | undefined> {
  const elsewhere = new CancellationTokenSource();
  const listener = host.onDidOccur((occurrence) => {
    if (occurrence.kind !== 'permission' || occurrence.permissionId !== permission.id) return;
    if (occurrence.state === 'answered') elsewhere.cancel();
  });
  try {
    const items = optionLabels(permission.options).map(({ icon, ...item }) => ({
      ...item,
      iconPath: new ThemeIcon(icon),
    }));
    const picked = await window.showQuickPick(
      items,
      {
        title: `${permissionSession(permission)} asks: ${permissionTitle(permission)}`,
        placeHolder: 'Choose the answer',
        ignoreFocusOut: true,
      },
      elsewhere.token,
    );
    if (elsewhere.token.isCancellationRequested) {
      showAnswered(permissionTitle(permission), 'it was answered elsewhere, or its turn has ended');
      return undefined;
    }
    if (picked === undefined) return undefined;
    return await answer(connection, permission, picked.option.id);
  } finally {
    listener.dispose();
    elsewhere.dispose();
  }
}

/** Gives the answer: the id of an option, or a kind. A person is told where it came too late. */
export async function answer(
  connection: HostConnection,
  asked: Pick<Permission, 'id'> & Partial<Permission>,
  given: string,
): Promise<PermissionOption['kind'] | undefined> {
  try {
    const { permission } = await connection.call('permission/answer', {
      permission: asked.id,
      answer: given,
      opId: randomUUID(),
    });
    const name = sanitize(permission.answer?.name ?? '', 60);
    window.setStatusBarMessage(`${permissionSession(permission)}: answered ${name}`, SHOWN_MS);
    return permission.answer?.kind;
  } catch (error) {
    const why = whyTooLate(error);
    if (why === undefined) throw error;
    const { title, kind } = asked;
    showAnswered(title === undefined || kind === undefined ? null : permissionTitle({ title, kind }), why);
    return undefined;
  }
}

/** `title`: what the agent wants to do, where that is known. */
function showAnswered(title: string | null, why: string): void {
  const what = title === null ? '' : ` to “${sanitize(title)}”`;
  void window.showInformationMessage(`No answer is needed any more${what}: ${why}.`);
}
