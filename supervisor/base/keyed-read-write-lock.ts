interface Door {
  /** Changes under way. */
  inside: number;
  /** How many keep it shut. */
  shut: number;
  /** Resolved when something of that has changed. */
  moved: PromiseWithResolvers<void>;
}

/**
 * Holds the changes that clients make to files back while a workspace is brought back to a snapshot: one that came between the
 * snapshot before it and its end would be in neither. What is shut must not hold anything that a change under way may wait for.
 */
export class KeyedReadWriteLock {
  readonly #doors = new Map<string, Door>();

  /** Does `change` as soon as the workspace of the session is nobody's alone. */
  async runShared<T>(sessionId: string, change: () => Promise<T>): Promise<T> {
    let door = this.#door(sessionId);
    for (; door.shut > 0; door = this.#door(sessionId)) await door.moved.promise;
    door.inside += 1;
    try {
      return await change();
    } finally {
      door.inside -= 1;
      this.#move(sessionId, door);
    }
  }

  /** Waits for the changes under way and does `act` before the next ones. */
  async runExclusive<T>(sessionId: string, act: () => Promise<T>): Promise<T> {
    const door = this.#door(sessionId);
    door.shut += 1;
    try {
      while (door.inside > 0) await door.moved.promise;
      return await act();
    } finally {
      door.shut -= 1;
      this.#move(sessionId, door);
    }
  }

  #door(sessionId: string): Door {
    const known = this.#doors.get(sessionId);
    if (known !== undefined) return known;
    const door: Door = { inside: 0, shut: 0, moved: Promise.withResolvers() };
    this.#doors.set(sessionId, door);
    return door;
  }

  #move(sessionId: string, door: Door): void {
    if (door.inside === 0 && door.shut === 0) this.#doors.delete(sessionId);
    const { resolve } = door.moved;
    door.moved = Promise.withResolvers();
    resolve();
  }
}
