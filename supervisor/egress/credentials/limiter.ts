import type { CredentialLimits } from '../../../protocol/credentials.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

export type ExceededLimit = keyof CredentialLimits;

/** What one session may still do with one credential. Starts at zero with each supervisor. */
export class CredentialLimiter {
  readonly #limits: CredentialLimits;
  /** ms since 1970. */
  readonly #now: () => number;
  #requests: number;
  #bytes: number;
  #running = 0;
  #refilledAt: number;

  constructor(limits: CredentialLimits, now: () => number) {
    this.#limits = limits;
    this.#now = now;
    this.#requests = limits.requests;
    this.#bytes = limits.bytes;
    this.#refilledAt = now();
  }

  /** Begins a request, which `end` ends. The limit that it would exceed, if any: then nothing has begun. */
  begin(): ExceededLimit | null {
    this.#refill();
    if (this.#running >= this.#limits.concurrent) return 'concurrent';
    if (this.#requests < 1) return 'requests';
    if (this.#bytes <= 0) return 'bytes';
    this.#requests -= 1;
    this.#running += 1;
    return null;
  }

  end(): void {
    this.#running -= 1;
  }

  /** False if no more bytes may pass. */
  pass(bytes: number): boolean {
    this.#bytes -= bytes;
    if (this.#bytes > 0) return true;
    this.#refill();
    return this.#bytes > 0;
  }

  #refill(): void {
    const now = this.#now();
    const elapsed = Math.max(0, now - this.#refilledAt);
    this.#refilledAt = now;
    const { requests, bytes } = this.#limits;
    this.#requests = Math.min(requests, this.#requests + (requests * elapsed) / MINUTE_MS);
    this.#bytes = Math.min(bytes, this.#bytes + (bytes * elapsed) / HOUR_MS);
  }
}
