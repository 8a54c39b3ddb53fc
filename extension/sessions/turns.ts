import { randomUUID } from 'node:crypto';
import { ProgressLocation, commands, window } from 'vscode';
import type { Session, Turn } from '../../protocol/entities.ts';
import { ENDED_TURN_STATUSES } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import { sanitize } from '../base/sanitize.ts';
import { formatProgress, formatTurnSnapshot } from '../snapshots/format.ts';
import type { SessionList } from './session-list.ts';
import { sessionTitle } from './listing.ts';
import { formatDispatch, formatTurnEnd } from './format.ts';

const WAIT_MS = 30_000;
/** Until the turn has a sandbox, how it came to it is asked for this often. */
const DISPATCH_MS = 250;
const SHOW_OUTPUT = 'Show Output';
const SHOW_HISTORY = 'Show History';

/** Gives the agent something to do and waits for the end; what was asked for as input where `given` is none. */
export async function runTurn(
  connection: Connection,
  sessions: SessionList,
  session: Session,
  given: unknown,
): Promise<Turn | undefined> {
  const isHandler = await takesJson(connection, session);
  const text = typeof given === 'string' ? given : await ask(session, isHandler);
  if (text === undefined) return undefined;
  const { turn } = await connection.call(
    'turn/start',
    { session: session.id, opId: randomUUID() },
    { bytes: Buffer.from(text, 'utf8') },
  );
  void sessions.refresh();
  const ended = await window.withProgress(
    { location: ProgressLocation.Notification, title: sanitize(sessionTitle(session)), cancellable: true },
    async (progress, token) => {
      const cancelling = token.onCancellationRequested(() => {
        // How it ends is told by the wait below.
        void connection.call('turn/cancel', { turn: turn.turnId }).catch(() => undefined);
      });
      try {
        const show = `[${SHOW_OUTPUT}](command:holdfast.openSession?${encodeURIComponent(JSON.stringify([session.id]))})`;
        return await follow(connection, turn, (message) =>
          progress.report({ message: `${message} · ${show}` }),
        );
      } finally {
        cancelling.dispose();
      }
    },
  );
  void sessions.refresh();
  tell(session, ended);
  return ended;
}

/** A handler takes JSON; everything else takes a prompt. */
async function takesJson(connection: Connection, { profile }: Session): Promise<boolean> {
  const { profiles } = await connection.call('profile/list', {}, { repeatable: true });
  return profiles.find(({ name }) => name === profile)?.agent.protocol === 'handler';
}

async function ask(session: Session, isHandler: boolean): Promise<string | undefined> {
  const title = `Run a turn of ${sanitize(sessionTitle(session))}`;
  if (!isHandler)
    return window.showInputBox({ title, prompt: 'What the agent is to do', ignoreFocusOut: true });
  return window.showInputBox({
    title,
    value: '{}',
    prompt: 'Input of the handler, as JSON',
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

async function follow(connection: Connection, begun: Turn, say: (message: string) => void): Promise<Turn> {
  let turn = begun;
  const scanning = { is: false };
  const onProgress = ({
    stage,
    done,
    of,
  }: {
    stage: string;
    done: number | null;
    of: number | null;
  }): void => {
    scanning.is = true;
    say(sanitize(done === null ? stage : `${stage} ${formatProgress(done, of)}`));
  };
  for (;;) {
    if (turn.status === 'queued') {
      if (!scanning.is) say(turn.ahead > 0 ? `waiting for ${turn.ahead} before it` : 'starting');
    } else if (turn.sandbox !== null) say(`running, ${formatDispatch(turn.sandbox)}`);
    if (ENDED_TURN_STATUSES.has(turn.status)) return turn;
    const timeoutMs = turn.sandbox === null ? DISPATCH_MS : WAIT_MS;
    ({ turn } = await connection.call(
      'turn/wait',
      { turn: turn.turnId, timeoutMs },
      { repeatable: true, onProgress },
    ));
  }
}

function tell(session: Session, turn: Turn): void {
  const note = formatTurnSnapshot(turn);
  const ended = `${sanitize(sessionTitle(session))}: ${sanitize(formatTurnEnd(turn), 400)}`;
  const text = note === null ? ended : `${ended} – ${sanitize(note, 400)}`;
  const told =
    note === null && (turn.status === 'succeeded' || turn.status === 'cancelled')
      ? window.showInformationMessage(text, SHOW_OUTPUT, SHOW_HISTORY)
      : window.showWarningMessage(text, SHOW_OUTPUT, SHOW_HISTORY);
  void told.then((choice) => {
    if (choice === SHOW_OUTPUT) void commands.executeCommand('holdfast.openSession', session.id);
    if (choice === SHOW_HISTORY) void commands.executeCommand('holdfast.showHistory', session.id);
  });
}
