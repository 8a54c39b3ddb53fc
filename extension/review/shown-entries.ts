/** What a tree shows. */
export interface TreeModel<N> {
  /** Made anew for each call. Without a parent: the entries at the top. */
  entriesBelow(parent: N | undefined): readonly N[];
  /** Unique in the tree; the same as long as the place of the entry is. */
  idOf(entry: N): string;
  /** Equal for entries that look the same. */
  looksOf(entry: N): string;
}

interface Shown<N> {
  readonly entry: N;
  /** How it was drawn; undefined before that. */
  looks?: string;
  /** The ids of the entries below it; undefined where nobody asked for them. */
  below?: readonly string[];
}

/**
 * What VS Code has of a tree. It forgets the entries below one that it draws again until it has asked for them, and loses the clicks
 * and the selection of that time. So an entry stays the same object until `forget`, and `update` says which have to be drawn again.
 */
export class ShownEntries<N extends object> {
  readonly #model: TreeModel<N>;
  readonly #shown = new Map<string, Shown<N>>();
  #top: readonly string[] = [];

  constructor(model: TreeModel<N>) {
    this.#model = model;
  }

  /** The entries for VS Code, which asks for them. */
  entriesBelow(parent: N | undefined): N[] {
    const entries = this.#model.entriesBelow(parent).map((fresh) => {
      const id = this.#model.idOf(fresh);
      const shown = this.#shown.get(id) ?? { entry: fresh };
      this.#shown.set(id, shown);
      return { id, entry: Object.assign(shown.entry, fresh) };
    });
    const ids = entries.map(({ id }) => id);
    const above = parent === undefined ? undefined : this.#shown.get(this.#model.idOf(parent));
    if (parent === undefined) this.#top = ids;
    else if (above?.entry === parent) above.below = ids;
    return entries.map(({ entry }) => entry);
  }

  /** VS Code draws an entry as it is now. */
  markDrawn(entry: N): void {
    const shown = this.#shown.get(this.#model.idOf(entry));
    if (shown?.entry === entry) shown.looks = this.#model.looksOf(entry);
  }

  /** Brings the entries up to date. Returns those that look different or have others below them; undefined stands for the top. */
  update(): (N | undefined)[] {
    return this.#update(undefined, this.#top);
  }

  /** From now on there are new objects; the old ones stay as they are, for commands that are on their way. */
  forget(): void {
    this.#shown.clear();
    this.#top = [];
  }

  #update(parent: N | undefined, known: readonly string[]): (N | undefined)[] {
    const entries = this.#model.entriesBelow(parent).map((fresh) => ({ id: this.#model.idOf(fresh), fresh }));
    const isSame = entries.length === known.length && entries.every(({ id }, at) => id === known[at]);
    const different = entries.flatMap(({ id, fresh }): (N | undefined)[] => {
      const shown = this.#shown.get(id);
      if (shown === undefined) return [];
      const entry = Object.assign(shown.entry, fresh);
      const below = shown.below === undefined ? [] : this.#update(entry, shown.below);
      return shown.looks === this.#model.looksOf(entry) ? below : [entry, ...below];
    });
    return isSame ? different : [parent, ...different];
  }
}
