import { credentialsOf } from '../../protocol/credentials.ts';
import type { Profile } from '../../protocol/profile.ts';
import { type ScopeOf, secretDestinations } from './secret-destinations.ts';

/**
 * What a person should know who deploys a project that somebody else wrote: which secrets are missing, and which of those for all
 * profiles the project sends to a host of its own choice.
 */
export function secretWarnings(profile: Profile, scopeOf: ScopeOf): string[] {
  const missing = credentialsOf(profile).flatMap(({ host, secret }) =>
    scopeOf(secret) === null
      ? [
          `The secret ${secret} is not set, and requests to ${host} are refused until it is: \`holdfast secret set ${secret}\``,
        ]
      : [],
  );
  const destinations = secretDestinations(profile, scopeOf);
  const sent = destinations
    .filter(({ by }) => by === 'sessions')
    .map(
      ({ secret, host }) =>
        `Sessions send the secret ${secret} to ${host}, ${unexpected(profile.name, secret)}`,
    );
  const ofSetup = Map.groupBy(
    destinations.filter(({ by }) => by === 'setup'),
    ({ secret }) => secret,
  );
  const given = [...ofSetup].map(([secret, those]) => {
    const hosts = those.map(({ host }) => host);
    const shown = hosts.length > 3 ? `${hosts.slice(0, 3).join(', ')} and others` : hosts.join(', ');
    return `The setup has the secret ${secret} and may reach ${shown}, ${unexpected(profile.name, secret)}`;
  });
  return [...missing, ...sent, ...given];
}

function unexpected(profile: string, name: string): string {
  return `because the project says so and the secret is for all profiles. If you did not expect that, replace it where it comes from; \`holdfast secret set ${name} --profile ${profile}\` keeps one for this profile alone`;
}
