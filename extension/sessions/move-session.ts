import { QuickPickItemKind, ThemeIcon, commands, window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { abortMove, moveSession } from '../../protocol/client/move-session.ts';
import type { Moved } from '../../protocol/client/move-session.ts';
import { formatBytes } from '../base/format.ts';
import { withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Progress } from '../../protocol/wire/shapes.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { hostStatus, hostTitle } from '../connection/host-status.ts';
import { sessionTitle } from './listing.ts';
import { OPEN_PAGE, openPageIf } from './page-offer.ts';

const MOVE = 'Move';
const WAIT = 'Wait for It';
const OPEN = 'Open Workspace';
const CONNECT = 'Connect to Host…';
const KEEP = 'Keep It Here';

/**
 * Moves a session to another host, or goes on with its move. `given`: the name of the host, from a program; a person is asked. Returns the id
 * of the session there; undefined where the person cancels.
 */
export async function moveToHost(
  connection: Connection,
  session: Session,
  given: unknown,
): Promise<string | undefined> {
  const source = connection.of(session.id);
  const title = sanitize(sessionTitle(session));
  const others = (): HostConnection[] => connection.hosts.filter(({ name }) => name !== source.name);
  const target = typeof given === 'string' ? connection.host(given) : await pickTarget(title, others);
  if (target === undefined) return undefined;
  if (typeof given !== 'string' && !(await confirm(session, target))) return undefined;
  const moved = await move(source, target, session, typeof given !== 'string');
  if (moved === undefined) return undefined;
  const there = moved.arrival.session;
  if (there === null) return undefined;
  if (!connection.owns(target, there.id))
    throw new HoldfastError(
      'permission_denied',
      `${target.name} says that what arrived is a session of another host`,
    );
  const lacks =
    moved.lacks.length === 0 ? '' : ` It lacks the secrets ${sanitize(moved.lacks.join(', '), 300)}.`;
  const leftover = moved.leftover === null ? '' : ` ${sanitize(moved.leftover.sentence, 500)}.`;
  void window
    .showInformationMessage(
      `${title} has moved to ${hostTitle(target.name)}.${lacks}${leftover}`,
      OPEN,
      OPEN_PAGE,
    )
    .then((choice) => {
      if (choice === OPEN) void commands.executeCommand('holdfast.openWorkspace', there.id);
      openPageIf(choice, there.id);
    });
  return there.id;
}

/** Gives a move up. The session can be used where it is. */
export async function keepSession(connection: Connection, session: Session): Promise<void> {
  const source = connection.of(session.id);
  const { to, discarded, failure } = await abortMove(
    { client: source, name: source.name },
    session.id,
    (home) => {
      const target = connection.hosts.find((host) => host.homeId === home);
      return target === undefined ? null : { client: target, name: hostTitle(target.name) };
    },
  );
  const notDeleted =
    failure === null
      ? 'was not asked: what had arrived there cannot be used, and goes when you repeat this.'
      : `has not deleted what had arrived there: ${sanitize(failure.sentence, 300)}. Repeat this.`;
  const rest = discarded === null ? ` ${sanitize(to)} ${notDeleted}` : '';
  void window.showInformationMessage(`${sanitize(sessionTitle(session))} stays here.${rest}`);
}

async function move(
  source: HostConnection,
  target: HostConnection,
  session: Session,
  isInteractive: boolean,
): Promise<Moved | undefined> {
  const title = sanitize(sessionTitle(session));
  const attempt = (wait: boolean): Promise<Moved | undefined> =>
    withProgress(
      `Moving ${title} to ${hostTitle(target.name)}`,
      async (report, signal) => {
        try {
          return await moveSession({
            source: { client: source, name: source.name },
            target: { client: target, name: target.name },
            session: session.id,
            // As the person was asked, whatever its host answers from here on.
            profile: session.profile,
            name: session.name,
            wait,
            signal,
            onProgress: (progress) => report(sanitize(messageOf(progress))),
          });
        } catch (error) {
          if (!signal.aborted) throw error;
          void offerToKeep(title, session);
          return undefined;
        }
      },
      'The move was interrupted',
    );
  try {
    return await attempt(false);
  } catch (error) {
    if (!isInteractive || !(await waitsFor(title, error))) throw error;
    return await attempt(true);
  }
}

function messageOf({ stage, done, unit }: Progress): string {
  return done === null || unit !== 'bytes' ? stage : `${stage}: ${formatBytes(done)}`;
}

/** Whether something runs in the session, and the person waits for it. */
async function waitsFor(title: string, error: unknown): Promise<boolean> {
  if (!(error instanceof HoldfastError) || error.code !== 'conflict') return false;
  if (error.details?.['live'] === undefined) return false;
  const choice = await window.showWarningMessage(
    `${title} is busy.`,
    { modal: true, detail: `${sanitize(error.why ?? error.message)}.` },
    WAIT,
  );
  if (choice === WAIT) return true;
  throw new HoldfastError('cancelled', 'Nothing was moved', { cause: error });
}

async function offerToKeep(title: string, session: Session): Promise<void> {
  const choice = await window.showInformationMessage(
    `The move of ${title} was interrupted. Move it again to go on.`,
    KEEP,
  );
  if (choice === KEEP) await commands.executeCommand('holdfast.keepSession', session.id);
}

async function confirm(session: Session, target: HostConnection): Promise<boolean> {
  const title = sanitize(sessionTitle(session));
  const detail =
    `There it is ${sanitize(`${session.profile}/${session.name}`)}. ` +
    'It is stopped here and continues there with its files, the state of its agent, history, memory and review. ' +
    'Secrets, sign-in files, its network rules and earlier snapshots stay behind. Its profile must be deployed there, and decides what it may reach.';
  const choice = await window.showInformationMessage(
    `Move ${title} to ${hostTitle(target.name)}?`,
    { modal: true, detail },
    MOVE,
  );
  return choice === MOVE;
}

interface TargetItem extends QuickPickItem {
  readonly host?: HostConnection;
}

/** One of the other hosts. One that is not in the list has to be connected to first. */
async function pickTarget(
  title: string,
  others: () => readonly HostConnection[],
): Promise<HostConnection | undefined> {
  const items: TargetItem[] = [
    ...others().map((host) => {
      const { text, icon } = hostStatus(host.state);
      return { label: hostTitle(host.name), description: text, iconPath: new ThemeIcon(icon), host };
    }),
    { label: '', kind: QuickPickItemKind.Separator },
    { label: CONNECT, iconPath: new ThemeIcon('add') },
  ];
  const picked = await window.showQuickPick(items, {
    title: `Move ${title}`,
    placeHolder: 'Choose the machine where the session continues',
  });
  // ssh may have to ask.
  picked?.host?.retry();
  if (picked === undefined || picked.host !== undefined) return picked?.host;
  const name = await commands.executeCommand('holdfast.connectHost');
  return others().find((host) => host.name === name);
}
