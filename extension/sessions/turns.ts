import { randomUUID } from 'node:crypto';
import { commands, window } from 'vscode';
import type { Session, Turn } from '../../protocol/entities.ts';
import { ENDED_TURN_STATUSES } from '../../protocol/entities.ts';
import { inputOfKind } from '../../protocol/turn-kinds.ts';
import { notifyProgress } from '../base/progress.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { formatCount, formatProgress } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from './session-list.ts';
import { sessionTitle } from './listing.ts';
import { OPEN_PAGE, openPageIf } from './page-offer.ts';
import { formatDispatch, formatTurnEnd, formatTurnSnapshot } from './format.ts';

/** How long one `turn/wait` waits. */
const WAIT_MS = 30_000;
const SEE_CHANGES = 'See Changes';
const SHOW_OUTPUT = 'Show Output';
const SHOW_HISTORY = 'Show History';

/**
 * Runs a turn and waits for its end. Asks for the input where `given` is no string; undefined where the person cancels.
 */
export async function runTurn(
  connection: HostConnection,
  sessions: SessionList,
  session: Session,
  given: unknown,
): Promise<Turn | undefined> {
  const text = typeof given === 'string' ? given : await ask(session, await takesJson(connection, session));
  if (text === undefined) return undefined;
  const { turn } = await connection.call(
    'turn/start',
    { session: session.id, opId: randomUUID() },
    { bytes: Buffer.from(text, 'utf8') },
  );
  void sessions.refresh();
  const ended = await notifyProgress(
    { title: sanitize(sessionTitle(session)), cancellable: true },
    async (progress, token) => {
      const cancelling = token.onCancellationRequested(() => {
        // The wait below reports how the turn ends.
        void connection.call('turn/cancel', { turn: turn.turnId }).catch(() => undefined);
      });
      try {
        const args = encodeURIComponent(JSON.stringify([session.id]));
        const show = `[${SHOW_OUTPUT}](command:holdfast.openSession?${args})`;
        return await follow(connection, turn, (message) =>
          progress.report({ message: `${message} · ${show}` }),
        );
      } finally {
        cancelling.dispose();
      }
    },
  );
  void sessions.refresh();
  report(session, ended);
  return ended;
}

async function takesJson(connection: HostConnection, { profile }: Session): Promise<boolean> {
  const { profiles } = await connection.call('profile/list', {});
  return inputOfKind(profiles.find(({ name }) => name === profile)?.agent.protocol) === 'json';
}

async function ask(session: Session, isJson: boolean): Promise<string | undefined> {
  const title = `Run a turn in ${sanitize(sessionTitle(session))}`;
  if (!isJson)
    return window.showInputBox({ title, prompt: 'What should the agent do?', ignoreFocusOut: true });
  return window.showInputBox({
    title,
    value: '{}',
    prompt: 'Input for the handler, as JSON',
    ignoreFocusOut: true,
    validateInput: (text) => {
      try {
        JSON.parse(text);
        return undefined;
      } catch {
        return 'This is not JSON. Enter a value such as {"city": "Lima"}.';
      }
    },
  });
}

/** Waits for the end of a turn and reports on the way what it waits for. */
async function follow(
  connection: HostConnection,
  started: Turn,
  show: (message: string) => void,
): Promise<Turn> {
  let turn = started;
  const progress = { isShown: false };
  const onProgress = ({
    stage,
    done,
    of,
  }: {
    stage: string;
    done: number | null;
    of: number | null;
  }): void => {
    progress.isShown = true;
    show(sanitize(done === null ? stage : `${stage} ${formatProgress(done, of)}`));
  };
  for (;;) {
    if (turn.status === 'queued') {
      if (!progress.isShown)
        show(turn.ahead > 0 ? `waiting for ${formatCount(turn.ahead, 'earlier turn')}` : 'starting');
    } else if (turn.sandbox !== null) show(`running, ${formatDispatch(turn.sandbox)}`);
    if (ENDED_TURN_STATUSES.has(turn.status)) return turn;
    const { turnId } = turn;
    ({ turn } = await connection.call(
      'turn/wait',
      { turn: turnId, timeoutMs: WAIT_MS, seen: turn },
      { onProgress },
    ));
  }
}

function report(session: Session, turn: Turn): void {
  const note = formatTurnSnapshot(turn);
  const ended = `${sanitize(sessionTitle(session))}: ${sanitize(formatTurnEnd(turn), 400)}`;
  const text = note === null ? ended : `${ended} – ${sanitize(note, 400)}`;
  const choices = [
    ...((turn.snapshot?.snapshotId ?? null) === null ? [] : [SEE_CHANGES]),
    SHOW_OUTPUT,
    OPEN_PAGE,
    SHOW_HISTORY,
  ];
  const shown =
    note === null && (turn.status === 'succeeded' || turn.status === 'cancelled')
      ? window.showInformationMessage(text, ...choices)
      : window.showWarningMessage(text, ...choices);
  void shown.then((choice) => {
    if (choice === SEE_CHANGES) void commands.executeCommand('holdfast.seeChanges', session.id, turn.turnId);
    if (choice === SHOW_OUTPUT) void commands.executeCommand('holdfast.openSession', session.id);
    openPageIf(choice, session.id);
    if (choice === SHOW_HISTORY) void commands.executeCommand('holdfast.showHistory', session.id);
  });
}
