import { window } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { Picker } from '../../webview/messages.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { pickersOf } from './setting-labels.ts';

/** What the agent of a session lets people choose, for its page. */
export async function readPickers(connection: Connection, session: string): Promise<Picker[]> {
  const { settings } = await connection.call('agent/settings', { session });
  return pickersOf(settings);
}

/**
 * Stores the mode or the model of a session's agent: the one that is given, else the one that a person picks. Returns it; undefined where the
 * person stopped, or there is nothing to choose.
 */
export async function chooseSetting(
  connection: Connection,
  { id, name: sessionName }: Session,
  what: Picker['what'],
  given: unknown,
): Promise<string | undefined> {
  const choose = async (value: string): Promise<string> => {
    await connection.call('agent/set', { session: id, option: what, value });
    return value;
  };
  if (typeof given === 'string') return choose(given);
  const { known, settings } = await connection.call('agent/settings', { session: id });
  const picker = pickersOf(settings).find((one) => one.what === what);
  if (picker === undefined) {
    const why = known ? `lets nobody choose its ${what}` : 'says in its first turn what it offers';
    void window.showInformationMessage(`The agent of ${sanitize(sessionName)} ${why}.`);
    return undefined;
  }
  const picked = await window.showQuickPick(
    picker.options.map(({ name, value }) => ({
      label: name,
      ...(value === picker.value && { description: 'current' }),
      value,
    })),
    {
      title: what === 'mode' ? 'Choose Mode' : 'Choose Model',
      placeHolder: 'Set at once during a turn, otherwise with the next prompt',
    },
  );
  return picked === undefined ? undefined : choose(picked.value);
}
