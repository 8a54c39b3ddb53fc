import type { SessionManifest } from '../late-messages.ts';

/** One thing that two manifests say differently; null where one of them does not say it. */
export interface ManifestDifference {
  readonly what: string;
  readonly before: string | null;
  readonly after: string | null;
}

/** What differs between two manifests of a session: facts in words, then connections by host, then credentials. */
export function differencesOf(before: SessionManifest, after: SessionManifest): ManifestDifference[] {
  const [old, now] = [statementsOf(before), statementsOf(after)];
  return [...new Set([...now.keys(), ...old.keys()])]
    .map((what) => ({ what, before: old.get(what) ?? null, after: now.get(what) ?? null }))
    .filter((one) => one.before !== one.after);
}

function statementsOf({ facts, hosts, credentials }: SessionManifest): Map<string, string> {
  return new Map([
    ...facts.map(({ label, value }) => [label, value] as const),
    ...hosts.map(
      ({ host, port, allowed, denied, failed }) =>
        [`${host}:${port}`, `${allowed} allowed, ${denied} denied, ${failed} failed`] as const,
    ),
    ...credentials.map(({ name, host }) => [`Credential ${name} for ${host}`, 'yes'] as const),
  ]);
}
