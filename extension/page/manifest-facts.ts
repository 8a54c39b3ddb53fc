import type { Manifest } from '../../protocol/manifest.ts';

const HASH_SHOWN = 16;

export interface Fact {
  readonly label: string;
  readonly value: string;
}

/** A manifest in words, in the order in which a person asks: with what, from what, what it did, what came of it. */
export function manifestFacts(manifest: Manifest): Fact[] {
  const { session, image, base, snapshot, turns, egress, handoffs, memory, history } = manifest;
  const facts: (Fact | null)[] = [
    { label: 'Profile', value: session.profile },
    session.model === null ? null : { label: 'Model', value: session.model },
    image === null ? null : { label: 'Image', value: withIdentity(image.name, image.identity) },
    base === null
      ? null
      : { label: 'Began with', value: withIdentity(base.folder, base.commit ?? base.root, base.branch) },
    { label: 'Turns', value: formatTurns(turns) },
    { label: 'Connections', value: formatConnections(egress) },
    { label: 'Handoffs', value: handoffs.total === 0 ? 'none' : String(handoffs.total) },
    memory === 0 ? null : { label: 'Memory', value: `version ${memory}` },
    snapshot === null
      ? null
      : { label: 'Newest snapshot', value: withIdentity(snapshot.id, snapshot.root, snapshot.at) },
    { label: 'History', value: withIdentity(`${history.seq} events`, history.hash) },
  ];
  return facts.filter((fact) => fact !== null);
}

/** `4 (3 succeeded, 1 failed)`. Statuses are counted among those that the manifest lists. */
function formatTurns({ total, listed }: Manifest['turns']): string {
  const counts = new Map<string, number>();
  for (const { status } of listed) {
    const word = status ?? 'running';
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const words = [...counts].map(([word, count]) => `${count} ${word}`);
  const cut = listed.length < total ? `, ${total - listed.length} not listed` : '';
  return words.length === 0 ? String(total) : `${total} (${words.join(', ')}${cut})`;
}

function formatConnections({ hosts, allowed, denied, failed }: Manifest['egress']): string {
  if (hosts === 0) return 'none';
  return `${allowed} allowed, ${denied} denied, ${failed} failed; ${hosts} ${hosts === 1 ? 'host' : 'hosts'}`;
}

/** A name with the beginning of what identifies it. */
function withIdentity(name: string, identity: string | null, more: string | null = null): string {
  const short = identity?.replace(/^sha256:/, '').slice(0, HASH_SHOWN);
  return [name, more, short].filter((part) => part !== null && part !== undefined && part !== '').join(' · ');
}
