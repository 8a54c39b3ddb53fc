import type { Artifact } from '../../protocol/artifacts.ts';
import { formatAge, formatBytes, formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { hostTitle } from '../connection/host-status.ts';

/** What is known of the artifacts of a host. */
export type HostArtifacts = { readonly host: string } & (
  | { readonly state: 'loading' }
  | { readonly state: 'listed'; readonly artifacts: readonly Artifact[] }
  | { readonly state: 'away'; readonly why: string }
);

/** A row of the list of artifacts. Its texts are safe to show. */
export type Row =
  | { readonly kind: 'host'; readonly label: string }
  | {
      readonly kind: 'artifact';
      readonly host: string;
      readonly artifact: Artifact;
      readonly label: string;
      readonly description: string;
      readonly detail: string;
    }
  | { readonly kind: 'away'; readonly host: string; readonly label: string; readonly description: string };

export interface ListedSessions {
  /** Only artifacts of this session. */
  readonly of?: string | undefined;
  /** The sessions that there are; undefined where that is not known. */
  readonly known: ReadonlySet<string> | undefined;
}

/** The artifacts of the hosts, the newest first; with a heading for each host where there are several. `now`: ms since 1970. */
export function rowsOf(hosts: readonly HostArtifacts[], { of, known }: ListedSessions, now: number): Row[] {
  return hosts.flatMap((one): Row[] => {
    const { host } = one;
    switch (one.state) {
      case 'loading':
        return [];
      case 'away':
        return [{ kind: 'away', host, label: hostTitle(host), description: sanitize(one.why, 200) }];
      case 'listed': {
        const artifacts =
          of === undefined ? one.artifacts : one.artifacts.filter(({ session }) => session === of);
        const rows = artifacts.map((artifact) => rowOf(host, artifact, known, now));
        const isAlone = hosts.length === 1;
        return rows.length === 0 || isAlone ? rows : [{ kind: 'host', label: hostTitle(host) }, ...rows];
      }
    }
  });
}

function rowOf(host: string, artifact: Artifact, known: ReadonlySet<string> | undefined, now: number): Row {
  const { session } = artifact;
  const isGone = known !== undefined && !known.has(session);
  return {
    ...{ kind: 'artifact', host, artifact },
    label: sanitize(artifact.name, 100),
    description: `${artifact.kind === 'patch' ? 'patch' : formatCount(artifact.files, 'file')} · ${formatBytes(artifact.bytes)} · ${formatAge(artifact.createdAt, now)}`,
    detail: `${originOf(artifact)}${isGone ? ' · the session is deleted' : ''}`,
  };
}

/** The session that an artifact is from. */
export function originOf({ profile, session, sessionName }: Artifact): string {
  return sanitize(sessionName === session ? `${profile}, ${session}` : `${profile}/${sessionName}`, 150);
}
