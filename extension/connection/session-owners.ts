/** More than all hosts of a person have. A host that reports more has them forgotten again. */
const MAX_SESSIONS = 50_000;

/**
 * Which host has which session. Ids are random, so two hosts with the same id are one that lies, or a session that was
 * moved: the host that reported it first keeps it while the window is open, and this machine goes before all others.
 */
export class SessionOwners {
  readonly #owners = new Map<string, string>();
  readonly #first: string;

  /** `first`: the host whose sessions are its own, whatever others say. */
  constructor(first: string) {
    this.#first = first;
  }

  /** True where the session is this host's now, or was before. */
  claim(host: string, session: string): boolean {
    const owner = this.#owners.get(session);
    if (owner === host) return true;
    if (owner !== undefined && host !== this.#first) return false;
    const oldest = this.#owners.size < MAX_SESSIONS ? undefined : this.#owners.keys().next().value;
    if (oldest !== undefined) this.#owners.delete(oldest);
    this.#owners.set(session, host);
    return true;
  }

  ownerOf(session: string): string | undefined {
    return this.#owners.get(session);
  }
}
