import { CREDENTIAL_PRESETS } from '../../protocol/credential-presets.ts';
import { credentialsOf } from '../../protocol/credentials.ts';
import { type Profile, setupSecretsOf } from '../../protocol/profile.ts';

/** For whom the secret is that a profile gets by a name. */
export type SecretScope = 'profile' | 'all';

const PRESET_HOSTS: ReadonlySet<string> = new Set(Object.values(CREDENTIAL_PRESETS).map(({ host }) => host));

/**
 * What a person should know who deploys a project that somebody else wrote: which secrets are missing, and which of those for all
 * profiles the project sends to a host of its own choice. `scopeOf`: null for a name without a usable secret.
 */
export function secretWarnings(profile: Profile, scopeOf: (name: string) => SecretScope | null): string[] {
  const warnings = credentialsOf(profile).flatMap(({ host, secret }) => {
    const scope = scopeOf(secret);
    if (scope === null)
      return [
        `The secret ${secret} is not set, and requests to ${host} are refused until it is: \`holdfast secret set ${secret}\``,
      ];
    if (scope === 'profile' || PRESET_HOSTS.has(host)) return [];
    return [`Sessions send the secret ${secret} to ${host}, ${unexpected(profile.name, secret)}`];
  });
  const repository = profile.workspace?.repository;
  const cloned = repository === undefined ? [] : [new URL(repository.url).host];
  const hosts = [
    ...(profile.setup?.egress ?? []).flatMap((rule) => (typeof rule === 'string' ? [] : [rule.host])),
    ...cloned.filter((host) => !PRESET_HOSTS.has(host)),
  ];
  if (hosts.length === 0) return warnings;
  const given = setupSecretsOf(profile).filter((name) => scopeOf(name) === 'all');
  const shown = hosts.length > 3 ? `${hosts.slice(0, 3).join(', ')} and others` : hosts.join(', ');
  return [
    ...warnings,
    ...given.map(
      (name) => `The setup has the secret ${name} and may reach ${shown}, ${unexpected(profile.name, name)}`,
    ),
  ];
}

function unexpected(profile: string, name: string): string {
  return `because the project says so and the secret is for all profiles. If you did not expect that, replace it where it comes from; \`holdfast secret set ${name} --profile ${profile}\` keeps one for this profile alone`;
}
