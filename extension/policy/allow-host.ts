import { window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import { HostPatternSchema } from '../../protocol/egress.ts';
import type { RuleScope } from '../../protocol/egress.ts';
import type { Session } from '../../protocol/entities.ts';
import { parseEvent } from '../../protocol/events.ts';
import type { Connection } from '../connection/connection.ts';
import { sanitize } from '../base/sanitize.ts';
import { validationMessage } from '../base/validation-message.ts';
import { sessionTitle } from '../sessions/listing.ts';

const RECENT_EVENTS = 2_000;
const MAX_HOSTS = 50;

const SCOPES = {
  once: 'once',
  session: 'for this session',
  profile: 'for every session of its profile',
} as const satisfies Record<RuleScope, string>;

interface HostItem extends QuickPickItem {
  readonly host: string | null;
}

/**
 * Allows a session to reach a host. Asks for the host and the scope where they are not given. Returns the host pattern;
 * undefined where the person cancels.
 */
export async function allowHost(
  connection: Connection,
  session: Session,
  given: { readonly host?: unknown; readonly scope?: unknown },
): Promise<string | undefined> {
  const host = typeof given.host === 'string' ? given.host : await pickHost(connection, session);
  if (host === undefined) return undefined;
  const scope = isScope(given.scope) ? given.scope : await pickScope(session, host);
  if (scope === undefined) return undefined;
  await connection.call('policy/allow', { session: session.id, host, scope });
  window.setStatusBarMessage(
    `${sanitize(sessionTitle(session))} may reach ${sanitize(host)} (${SCOPES[scope]})`,
    10_000,
  );
  return host;
}

async function pickHost(connection: Connection, session: Session): Promise<string | undefined> {
  const denied = await deniedHosts(connection, session);
  const items: HostItem[] = [
    ...denied.map((host) => ({ label: sanitize(host), description: 'was denied', host })),
    { label: '$(edit) Another Host…', host: null, alwaysShow: true },
  ];
  const picked = denied.length === 0 ? items[0] : await window.showQuickPick(items, title(session));
  if (picked === undefined) return undefined;
  if (picked.host !== null) return picked.host;
  return window.showInputBox({
    ...title(session),
    prompt: 'For example api.example.com, *.example.org:8443 or 127.0.0.1:8080',
    validateInput: (text) => validationMessage(HostPatternSchema, text, 'a host name'),
  });
}

/** The hosts that were denied to the session and that a rule can allow, the latest first. */
async function deniedHosts(connection: Connection, { id, lastSeq }: Session): Promise<string[]> {
  const { events } = await connection.call('session/events', {
    session: id,
    type: 'egress',
    after: Math.max(0, lastSeq - RECENT_EVENTS),
  });
  const rules = events.reverse().flatMap((event) => {
    const entry = parseEvent(event);
    return entry?.type === 'egress' && entry.data.decision === 'denied' && entry.data.allow !== null
      ? [entry.data.allow]
      : [];
  });
  return [...new Set(rules)].slice(0, MAX_HOSTS);
}

async function pickScope(session: Session, host: string): Promise<RuleScope | undefined> {
  const scopes: (QuickPickItem & { scope: RuleScope })[] = [
    { label: 'For This Session', description: 'until you deny it or delete the session', scope: 'session' },
    { label: 'Once', description: 'the next connection only', scope: 'once' },
    {
      label: `For Every Session of ${session.profile}`,
      description: 'existing and new ones',
      scope: 'profile',
    },
  ];
  const picked = await window.showQuickPick(scopes, {
    title: `Allow ${sanitize(host)}`,
    placeHolder: `For how long may ${sanitize(sessionTitle(session))} reach it?`,
  });
  return picked?.scope;
}

function title(session: Session): { title: string; placeHolder: string } {
  return { title: `Allow a host for ${sanitize(sessionTitle(session))}`, placeHolder: 'Choose a host' };
}

function isScope(scope: unknown): scope is RuleScope {
  return scope === 'once' || scope === 'session' || scope === 'profile';
}
