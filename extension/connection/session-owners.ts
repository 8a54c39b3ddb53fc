/** Sessions of another machine that a window knows. Further ones are not shown, and none of another host makes room. */
export const MAX_HOST_SESSIONS = 5_000;

/**
 * Which host has which session. Ids are random, so two hosts with the same id are one that lies, or a session that was
 * moved: the host that reported it first keeps it while the window is open, and this machine goes before all others.
 */
export class SessionOwners {
  readonly #owners = new Map<string, string>();
  /** How many each host has. */
  readonly #counts = new Map<string, number>();
  readonly #first: string;

  /** `first`: the host whose sessions are its own, whatever others say. */
  constructor(first: string) {
    this.#first = first;
  }

  /** True where the session is this host's now, or was before. */
  claim(host: string, session: string): boolean {
    const owner = this.#owners.get(session);
    if (owner === host) return true;
    if (host !== this.#first && (owner !== undefined || this.#countOf(host) >= MAX_HOST_SESSIONS))
      return false;
    if (owner !== undefined) this.#counts.set(owner, this.#countOf(owner) - 1);
    this.#counts.set(host, this.#countOf(host) + 1);
    this.#owners.set(session, host);
    return true;
  }

  ownerOf(session: string): string | undefined {
    return this.#owners.get(session);
  }

  #countOf(host: string): number {
    return this.#counts.get(host) ?? 0;
  }
}
