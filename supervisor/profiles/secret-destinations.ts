import { CREDENTIAL_PRESETS } from '../../protocol/credential-presets.ts';
import { credentialsOf } from '../../protocol/credentials.ts';
import type { SecretDestination } from '../../protocol/deploy.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Profile, setupSecretsOf } from '../../protocol/profile.ts';

/** For whom the secret is that a profile gets by a name. */
export type SecretScope = 'profile' | 'all';
/** Null for a name without a usable secret. */
export type ScopeOf = (name: string) => SecretScope | null;

const PRESET_HOSTS: ReadonlySet<string> = new Set(Object.values(CREDENTIAL_PRESETS).map(({ host }) => host));

/** Which secrets for all profiles a profile sends to hosts of its own choice: those of its sessions first. */
export function secretDestinations(profile: Profile, scopeOf: ScopeOf): SecretDestination[] {
  const bySessions = credentialsOf(profile).flatMap(({ host, secret }) =>
    scopeOf(secret) === 'all' && !PRESET_HOSTS.has(host) ? [{ secret, host, by: 'sessions' as const }] : [],
  );
  const repository = profile.workspace?.repository;
  const cloned = repository === undefined ? [] : [new URL(repository.url).host];
  const hosts = [
    ...(profile.setup?.egress ?? []).flatMap((rule) => (typeof rule === 'string' ? [] : [rule.host])),
    ...cloned.filter((host) => !PRESET_HOSTS.has(host)),
  ];
  const given = setupSecretsOf(profile).filter((name) => scopeOf(name) === 'all');
  const bySetup = given.flatMap((secret) =>
    [...new Set(hosts)].map((host) => ({ secret, host, by: 'setup' as const })),
  );
  return [...bySessions, ...bySetup];
}

/** Those that the deployed version, if there is one, does not have: a person has to agree to them. */
export function newDestinations(
  profile: Profile,
  before: Profile | null,
  scopeOf: ScopeOf,
): SecretDestination[] {
  const known = before === null ? [] : secretDestinations(before, scopeOf);
  return without(secretDestinations(profile, scopeOf), known);
}

/** Errors: `confirmation_required` for destinations that nobody agreed to. */
export function requireAgreement(
  profile: string,
  wanted: readonly SecretDestination[],
  agreed: readonly SecretDestination[],
): void {
  const missing = without(wanted, agreed);
  if (missing.length === 0) return;
  const shown = missing.slice(0, 3).map(({ secret, host, by }) => `${secret} to ${host} (${by})`);
  const more = missing.length > shown.length ? ` and ${missing.length - shown.length} more` : '';
  throw new HoldfastError('confirmation_required', `${profile} was not deployed`, {
    why: `the project would send secrets that are for all profiles to hosts of its own choice: ${shown.join(', ')}${more}`,
    next: `add --yes if you expected that; \`holdfast secret set NAME --profile ${profile}\` keeps a secret for this profile alone`,
    details: { destinations: missing },
  });
}

function without(
  all: readonly SecretDestination[],
  known: readonly SecretDestination[],
): SecretDestination[] {
  const keyOf = ({ secret, host, by }: SecretDestination): string => JSON.stringify([secret, host, by]);
  const keys = new Set(known.map(keyOf));
  return all.filter((one) => !keys.has(keyOf(one)));
}
