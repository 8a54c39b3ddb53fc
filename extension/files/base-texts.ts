/** Larger files are not merged. */
const MAX_CHARACTERS = 2 ** 20;
const MAX_TOTAL_CHARACTERS = 32 * 2 ** 20;

/** The base texts of open documents, for merging. The most recent ones are kept, up to a limit. */
export class BaseTexts {
  readonly #texts = new Map<string, { readonly version: string; readonly text: string }>();
  #characters = 0;

  set(key: string, version: string, text: string): void {
    this.forget(key);
    if (text.length > MAX_CHARACTERS) return;
    this.#texts.set(key, { version, text });
    this.#characters += text.length;
    for (const oldest of this.#texts.keys()) {
      if (this.#characters <= MAX_TOTAL_CHARACTERS) return;
      this.forget(oldest);
    }
  }

  /** The text of exactly this version; undefined where it is not cached. */
  get(key: string, version: string): string | undefined {
    const cached = this.#texts.get(key);
    return cached?.version === version ? cached.text : undefined;
  }

  forget(key: string): void {
    const cached = this.#texts.get(key);
    if (cached === undefined) return;
    this.#texts.delete(key);
    this.#characters -= cached.text.length;
  }
}
