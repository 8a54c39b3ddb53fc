/** A client that can ask a person. Resolves with null if they do not answer, with undefined if the client has gone. */
export type Asker = (question: {
  readonly text: string;
  readonly isSecret: boolean;
}) => Promise<string | null | undefined>;

/**
 * Only the question about an unknown host key has an answer that others may read. Prompts of the other machine never begin
 * like ssh's own: OpenSSH puts `(user@host) ` before them.
 */
const ABOUT_HOST_KEY = /^(?:The authenticity of host '|Please type 'yes', 'no' or the fingerprint)/;

/** What the other machine asks for: as ssh shows prompts of keyboard-interactive logins, and its own for passwords. */
const OF_HOST = /^\([^)\s]+@[^)\s]+\) |'s password: $/;

export function isAskedByHost(text: string): boolean {
  return OF_HOST.test(text);
}

export function isAboutHostKey(text: string): boolean {
  return ABOUT_HOST_KEY.test(text);
}

/** Passes the questions of ssh to the clients that wait for the connection: the first of them asks its person. */
export class Questions {
  readonly #askers = new Set<Asker>();
  #last: string | undefined;
  #queue: Promise<unknown> = Promise.resolve();

  /** Returns the function that removes the asker. */
  add(asker: Asker): () => void {
    this.#askers.add(asker);
    return () => this.#askers.delete(asker);
  }

  /** One question at a time. Null: the person does not answer. Undefined: nobody can be asked. */
  ask(text: string): Promise<string | null | undefined> {
    const answer = this.#queue.then(() => this.#askFirst(text));
    this.#queue = answer.catch(() => undefined);
    return answer;
  }

  async #askFirst(text: string): Promise<string | null | undefined> {
    const isSecret = !isAboutHostKey(text);
    // ssh repeats its words and does not say why. Another secret may have the same prompt.
    const isRepeated = isSecret && text === this.#last;
    this.#last = text;
    const words = isRepeated ? `Asked again, the last answer may be wrong: ${text}` : text;
    for (const asker of this.#askers) {
      const answer = await asker({ text: words, isSecret });
      if (answer !== undefined) return answer;
      this.#askers.delete(asker);
    }
    return undefined;
  }
}
