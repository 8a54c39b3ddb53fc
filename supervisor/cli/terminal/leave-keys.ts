const TILDE = 0x7e;
const DOT = 0x2e;
const CR = 0x0d;

export interface Keys {
  /** What goes to the program. */
  readonly keys: Buffer;
  readonly leaves: boolean;
}

/** Enter, ~ and . at the beginning of a line leave a terminal, as they leave ssh; ~~ is one ~. */
export class LeaveKeys {
  #atStart = true;
  #tilde = false;

  take(bytes: Uint8Array): Keys {
    const keys: number[] = [];
    for (const byte of bytes) {
      if (this.#tilde) {
        this.#tilde = false;
        if (byte === DOT) return { keys: Buffer.from(keys), leaves: true };
        keys.push(TILDE);
        if (byte === TILDE) {
          this.#atStart = false;
          continue;
        }
      }
      if (this.#atStart && byte === TILDE) {
        this.#tilde = true;
        continue;
      }
      this.#atStart = byte === CR;
      keys.push(byte);
    }
    return { keys: Buffer.from(keys), leaves: false };
  }
}
