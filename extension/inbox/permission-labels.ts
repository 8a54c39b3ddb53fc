import type { PermissionOption } from '../../protocol/agent-events.ts';
import type { Permission } from '../../protocol/permissions.ts';
import { formatAge } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from '../sessions/listing.ts';

/** Holds the question for a host and its warning as a whole, see `supervisor/tools/egress-requests.ts`. */
const MAX_TITLE = 160;
const MAX_LOCATIONS = 3;
const MAX_LOCATION = 60;
const MAX_OPTION = 60;

/** In the order in which they are offered, whatever order the agent gives. */
const KINDS: readonly PermissionOption['kind'][] = [
  'allow_once',
  'allow_always',
  'reject_once',
  'reject_always',
];
/** What an option does. Its name is the agent's, and may say something else. */
const EFFECTS: Readonly<Record<PermissionOption['kind'], string>> = {
  allow_once: 'allows it this time',
  allow_always: 'allows it from now on',
  reject_once: 'rejects it this time',
  reject_always: 'rejects it from now on',
};

/** What the agent wants to do, in its own words, on one line. */
export function permissionTitle({ title, kind }: Pick<Permission, 'title' | 'kind'>): string {
  const text = sanitize(title, MAX_TITLE).trim();
  return text === '' ? `Use a tool (${kind})` : text;
}

/** The session that asks. */
export function permissionSession({
  sessionId: id,
  sessionName: name,
  profile,
}: Pick<Permission, 'sessionId' | 'sessionName' | 'profile'>): string {
  return sanitize(sessionTitle({ id, name, profile }));
}

/** A permission in a list. `now`: milliseconds. */
export function permissionLabels(
  permission: Permission,
  now: number,
): { readonly label: string; readonly description: string; readonly detail?: string } {
  const { kind, askedAt, locations } = permission;
  const age = formatAge(new Date(askedAt).toISOString(), now);
  const shown = locations
    .slice(0, MAX_LOCATIONS)
    .map(({ path, line }) => sanitize(line === null ? path : `${path}:${line}`, MAX_LOCATION));
  const more = locations.length > MAX_LOCATIONS ? [`${locations.length - MAX_LOCATIONS} more`] : [];
  return {
    label: permissionTitle(permission),
    description: `${permissionSession(permission)} · ${kind} · ${age}`,
    ...(shown.length === 0 ? {} : { detail: [...shown, ...more].join(', ') }),
  };
}

/** The options of a permission, ordered by what they do, with the names of VS Code icons. */
export function optionLabels(options: readonly PermissionOption[]): {
  readonly label: string;
  readonly description: string;
  readonly icon: string;
  readonly option: PermissionOption;
}[] {
  return [...options]
    .sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind))
    .map((option) => ({
      label: sanitize(option.name, MAX_OPTION).trim() || option.kind,
      description: EFFECTS[option.kind],
      icon: option.kind.startsWith('allow') ? 'check' : 'circle-slash',
      option,
    }));
}
