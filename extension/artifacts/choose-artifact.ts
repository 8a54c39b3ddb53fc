import { QuickPickItemKind, ThemeIcon, window } from 'vscode';
import type { QuickInputButton, QuickPickItem } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { LOCAL } from '../connection/host-name.ts';
import { hostStatus } from '../connection/host-status.ts';
import type { SessionList } from '../sessions/session-list.ts';
import type { KeptArtifact } from './kept.ts';
import { rowsOf } from './rows.ts';
import type { HostArtifacts, Row } from './rows.ts';

const LIST_MS = 20_000;

export type ArtifactAction = 'open' | 'export' | 'verify' | 'delete';

/** What the person chose in the list. */
export type ArtifactChoice =
  | { readonly action: ArtifactAction; readonly kept: KeptArtifact }
  | { readonly action: 'keep' }
  | { readonly action: 'connect'; readonly host: string };

interface ActionButton extends QuickInputButton {
  readonly action: ArtifactAction;
}

const BUTTONS: readonly ActionButton[] = [
  { action: 'export', iconPath: new ThemeIcon('export'), tooltip: 'Export…' },
  { action: 'verify', iconPath: new ThemeIcon('verified'), tooltip: 'Verify' },
  { action: 'delete', iconPath: new ThemeIcon('trash'), tooltip: 'Delete…' },
];

interface ArtifactItem extends QuickPickItem {
  readonly row: Row | 'keep';
}

/**
 * Lists the artifacts of the hosts, or those of one session, while they answer. `actions`: each has buttons for what can be done with
 * it. Undefined where the person closes the list.
 */
export async function chooseArtifact(
  connection: Connection,
  sessions: SessionList,
  {
    title,
    of,
    actions = false,
  }: { readonly title: string; readonly of?: string; readonly actions?: boolean },
): Promise<ArtifactChoice | undefined> {
  const hosts = of === undefined ? connection.hosts : [connection.of(of)];
  const listed: HostArtifacts[] = hosts.map(({ name }) => ({ host: name, state: 'loading' }));
  const pick = window.createQuickPick<ArtifactItem>();
  const chosen = Promise.withResolvers<ArtifactChoice | undefined>();
  const closed = new AbortController();
  let known: ReadonlySet<string> | undefined;
  const draw = (): void => {
    if (closed.signal.aborted) return;
    const rows = rowsOf(listed, { of, known }, Date.now());
    pick.items = [...rows.map((row) => itemOf(row, actions)), KEEP];
    pick.busy = listed.some(({ state }) => state === 'loading');
    const isNone = !rows.some(({ kind }) => kind === 'artifact');
    pick.placeholder = pick.busy ? 'Loading…' : isNone ? 'Nothing is kept yet' : 'Choose an artifact';
  };
  pick.title = title;
  pick.matchOnDescription = true;
  pick.matchOnDetail = true;
  pick.keepScrollPosition = true;
  pick.onDidAccept(() => {
    const [item] = pick.selectedItems;
    chosen.resolve(item === undefined ? undefined : choiceOf(hosts, item.row, 'open'));
  });
  pick.onDidTriggerItemButton(({ item, button }) => {
    const { action } = BUTTONS.find((one) => one === button) ?? {};
    if (action !== undefined) chosen.resolve(choiceOf(hosts, item.row, action));
  });
  pick.onDidHide(() => chosen.resolve(undefined));
  draw();
  pick.show();
  const lists = hosts.map(async (host, at) => {
    listed[at] = await artifactsOf(host, host === connection.own, closed.signal);
    draw();
  });
  const shown = sessions.refresh().then(() => {
    const here = sessions.current?.filter(({ status }) => status !== 'deleted');
    known = here === undefined ? undefined : new Set(here.map(({ id }) => id));
    draw();
  });
  // The list says what it could not read; whether a session is deleted is a detail.
  void Promise.allSettled([...lists, shown]);
  try {
    return await chosen.promise;
  } finally {
    closed.abort();
    pick.dispose();
  }
}

const KEEP: ArtifactItem = {
  row: 'keep',
  label: 'Keep as Artifact…',
  iconPath: new ThemeIcon('add'),
  alwaysShow: true,
};

function itemOf(row: Row, actions: boolean): ArtifactItem {
  switch (row.kind) {
    case 'host':
      return { row, label: row.label, kind: QuickPickItemKind.Separator };
    case 'away':
      return {
        ...{ row, label: row.label, description: row.description },
        iconPath: new ThemeIcon('debug-disconnect'),
      };
    case 'artifact':
      return {
        ...{ row, label: row.label, description: row.description, detail: row.detail },
        iconPath: new ThemeIcon(row.artifact.kind === 'patch' ? 'diff' : 'files'),
        ...(actions ? { buttons: BUTTONS } : {}),
      };
  }
}

function choiceOf(
  hosts: readonly HostConnection[],
  row: Row | 'keep',
  action: ArtifactAction,
): ArtifactChoice | undefined {
  if (row === 'keep') return { action: 'keep' };
  if (row.kind === 'away') return { action: 'connect', host: row.host };
  const host = row.kind === 'artifact' ? hosts.find(({ name }) => name === row.host) : undefined;
  return host === undefined || row.kind !== 'artifact'
    ? undefined
    : { action, kept: { host, artifact: row.artifact } };
}

/** Another machine is asked only over a connection that there is: the list does not wait for a login. */
async function artifactsOf(
  host: HostConnection,
  isOwn: boolean,
  signal: AbortSignal,
): Promise<HostArtifacts> {
  const { name } = host;
  if (name !== LOCAL && !isOwn && host.peer === undefined)
    return { host: name, state: 'away', why: hostStatus(host.state).text };
  try {
    const { artifacts } = await host.call('artifact/list', {}, { timeoutMs: LIST_MS, signal });
    return { host: name, state: 'listed', artifacts };
  } catch (error) {
    return { host: name, state: 'away', why: HoldfastError.from(error).message };
  }
}
