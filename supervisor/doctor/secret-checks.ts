import type { Check } from '../../protocol/entities.ts';
import type { Secret } from '../../protocol/secrets.ts';
import { ok, problem, warning } from './engine-checks.ts';

/** Whether the secrets of this home can be used. Names them, never their values. */
export function secretChecks(secrets: readonly Secret[]): Check[] {
  const named = (state: Secret['state']): string[] =>
    secrets.filter((secret) => secret.state === state).map(({ name }) => name);
  const unreadable = named('unreadable');
  const expired = named('expired');
  if (unreadable.length > 0)
    return [
      problem(
        'secrets',
        `${listed(unreadable)} cannot be read: a file or the key in the home's \`secrets\` folder is missing, damaged or open to others`,
        'restore the folder from a backup with mode 0600 for its files, or set the secrets again',
      ),
    ];
  if (expired.length > 0)
    return [warning('secrets', `${listed(expired)} expired`, 'set them again with `holdfast secret set`')];
  return [
    ok(
      'secrets',
      secrets.length === 0
        ? 'none'
        : `${secrets.length}, encrypted with a key file of the home; whoever can read the home as you do can read them`,
    ),
  ];
}

function listed(names: readonly string[]): string {
  const shown = names.slice(0, 5).join(', ');
  return names.length > 5 ? `${shown} and ${names.length - 5} more` : shown;
}
