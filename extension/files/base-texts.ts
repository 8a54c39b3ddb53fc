/** Larger files are compared by hand, not merged. */
const MOST_CHARACTERS = 2 ** 20;
const MOST_CHARACTERS_IN_ALL = 32 * 2 ** 20;

/** The texts that open documents began from, for merging: the latest of them, up to a bound. */
export class BaseTexts {
  readonly #texts = new Map<string, { readonly version: string; readonly text: string }>();
  #characters = 0;

  set(key: string, version: string, text: string): void {
    this.forget(key);
    if (text.length > MOST_CHARACTERS) return;
    this.#texts.set(key, { version, text });
    this.#characters += text.length;
    for (const oldest of this.#texts.keys()) {
      if (this.#characters <= MOST_CHARACTERS_IN_ALL) return;
      this.forget(oldest);
    }
  }

  /** The text of exactly this version; undefined where it was not kept. */
  get(key: string, version: string): string | undefined {
    const kept = this.#texts.get(key);
    return kept?.version === version ? kept.text : undefined;
  }

  forget(key: string): void {
    const kept = this.#texts.get(key);
    if (kept === undefined) return;
    this.#texts.delete(key);
    this.#characters -= kept.text.length;
  }
}
