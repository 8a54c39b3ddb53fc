/**
 * One lock per lineage. Shared: whoever relies on objects being there – a snapshot from its first look at the store until its
 * row is written, everything that reads. Exclusive: whoever takes objects away, for as long as files change places. First
 * come, first served; not reentrant, so what is called with it held must not ask for it again.
 */
export class LineageLocks {
  readonly #locks = new Map<string, Lock>();

  shared<T>(lineage: string, act: () => Promise<T>): Promise<T> {
    return this.#with(lineage, false, act);
  }

  exclusive<T>(lineage: string, act: () => Promise<T>): Promise<T> {
    return this.#with(lineage, true, act);
  }

  async #with<T>(lineage: string, alone: boolean, act: () => Promise<T>): Promise<T> {
    const lock = this.#locks.get(lineage) ?? new Lock();
    this.#locks.set(lineage, lock);
    await lock.enter(alone);
    try {
      return await act();
    } finally {
      lock.leave(alone);
      if (lock.isFree) this.#locks.delete(lineage);
    }
  }
}

class Lock {
  #inside = 0;
  #alone = false;
  readonly #waiting: { readonly alone: boolean; readonly go: () => void }[] = [];

  get isFree(): boolean {
    return this.#inside === 0 && this.#waiting.length === 0;
  }

  async enter(alone: boolean): Promise<void> {
    if (this.#waiting.length === 0 && this.#admits(alone)) this.#take(alone);
    else await new Promise<void>((go) => this.#waiting.push({ alone, go }));
  }

  leave(alone: boolean): void {
    this.#inside -= 1;
    if (alone) this.#alone = false;
    for (
      let next = this.#waiting[0];
      next !== undefined && this.#admits(next.alone);
      next = this.#waiting[0]
    ) {
      this.#waiting.shift();
      this.#take(next.alone);
      next.go();
    }
  }

  #admits(alone: boolean): boolean {
    return alone ? this.#inside === 0 : !this.#alone;
  }

  #take(alone: boolean): void {
    this.#inside += 1;
    this.#alone = alone;
  }
}
