import { ArtifactIdSchema, HomeIdSchema, SessionIdSchema, SnapshotIdSchema } from './ids.ts';

/**
 * What the authority of a link names: a session, a snapshot or an artifact, and the home that has it.
 *
 * `holdfast://<session>.<home id>/workspace/…`, `holdfast-snapshot://<snapshot>.<home id>/workspace/…` and
 * `holdfast-artifact://<artifact>.<home id>/workspace/…`. A link without a home id means the home of this machine. Neither id contains a dot, so the id is what stands before the first one.
 */
export interface LinkAuthority {
  readonly id: string;
  /** Null: the home of this machine. */
  readonly home: string | null;
}

/** Undefined for text that is no authority of a link to a session. */
export function parseSessionAuthority(authority: string): LinkAuthority | undefined {
  return parseAuthority(authority, (id) => SessionIdSchema.safeParse(id).success);
}

/** Undefined for text that is no authority of a link to a snapshot. */
export function parseSnapshotAuthority(authority: string): LinkAuthority | undefined {
  return parseAuthority(authority, (id) => SnapshotIdSchema.safeParse(id).success);
}

/** Undefined for text that is no authority of a link to an artifact. */
export function parseArtifactAuthority(authority: string): LinkAuthority | undefined {
  return parseAuthority(authority, (id) => ArtifactIdSchema.safeParse(id).success);
}

/** The inverse of all three. */
export function formatAuthority({ id, home }: LinkAuthority): string {
  return home === null ? id : `${id}.${home}`;
}

function parseAuthority(authority: string, isId: (id: string) => boolean): LinkAuthority | undefined {
  const dot = authority.indexOf('.');
  const id = dot === -1 ? authority : authority.slice(0, dot);
  const home = dot === -1 ? null : authority.slice(dot + 1);
  if (!isId(id) || (home !== null && !HomeIdSchema.safeParse(home).success)) return undefined;
  return { id, home };
}
