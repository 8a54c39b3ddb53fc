import { QuickPickItemKind, ThemeIcon, window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import { parseDestination } from '../../hosts/base/destination.ts';
import { configuredHosts } from '../../hosts/ssh/ssh-config.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { sanitize } from '../base/sanitize.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { hostStatus, hostTitle } from '../connection/host-status.ts';

/** A host of the list, or where ssh connects to. */
export type HostChoice = { readonly name: string } | { readonly destination: string };

interface HostItem extends QuickPickItem {
  readonly choice?: HostChoice | 'type';
}

/** One of the hosts that are known, of the ssh configuration, or one that the person types. */
export async function pickHostToConnect(known: readonly HostConnection[]): Promise<HostChoice | undefined> {
  const names = new Set(known.map(({ name }) => name));
  const configured = configuredHosts().filter((name) => !names.has(name.toLowerCase()));
  const items: HostItem[] = [
    { label: 'Type a Destination…', iconPath: new ThemeIcon('add'), choice: 'type' },
    ...section('Hosts', known.map(hostItem)),
    ...section(
      'In ~/.ssh/config',
      configured.map((name) => ({
        label: sanitize(name),
        iconPath: new ThemeIcon('terminal'),
        choice: { destination: name },
      })),
    ),
  ];
  const picked = await window.showQuickPick(items, {
    title: 'Connect to Host',
    placeHolder: 'Choose the machine where agents run, reached by ssh',
    matchOnDescription: true,
  });
  return picked?.choice === 'type' ? typeDestination() : picked?.choice;
}

/** One of several hosts; the only one without asking. */
export async function pickKnownHost(
  title: string,
  hosts: readonly HostConnection[],
): Promise<HostConnection | undefined> {
  if (hosts.length <= 1) return hosts[0];
  const items = hosts.map((host) => ({ ...hostItem(host), host }));
  return (await window.showQuickPick(items, { title, placeHolder: 'Choose a host' }))?.host;
}

function hostItem({ name, state }: HostConnection): HostItem {
  const { text, icon } = hostStatus(state);
  return {
    label: hostTitle(name),
    description: text,
    iconPath: new ThemeIcon(icon),
    choice: { name },
  };
}

function section(label: string, items: readonly HostItem[]): HostItem[] {
  return items.length === 0 ? [] : [{ label, kind: QuickPickItemKind.Separator }, ...items];
}

async function typeDestination(): Promise<HostChoice | undefined> {
  const destination = await window.showInputBox({
    title: 'Connect to Host',
    prompt: 'ssh://USER@HOST:PORT, USER@HOST, or a name of your ~/.ssh/config',
    ignoreFocusOut: true,
    validateInput: (text) => (text === '' ? undefined : problemOf(text)),
  });
  return destination === undefined || destination === '' ? undefined : { destination };
}

function problemOf(text: string): string | undefined {
  try {
    parseDestination(text.trim());
    return undefined;
  } catch (error) {
    const { why, message } = HoldfastError.from(error);
    return sanitize(why ?? message);
  }
}
