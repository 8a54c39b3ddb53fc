/** A client that can ask a person. Resolves with null if nobody answers. */
export type Asker = (question: {
  readonly text: string;
  readonly isSecret: boolean;
}) => Promise<string | null>;

/**
 * Only the question about an unknown host key has an answer that others may read. Prompts of the other machine never begin
 * like ssh's own: OpenSSH puts `(user@host) ` before them.
 */
const ABOUT_HOST_KEY = /^(?:The authenticity of host '|Please type 'yes', 'no' or the fingerprint)/;

export function isAboutHostKey(text: string): boolean {
  return ABOUT_HOST_KEY.test(text);
}

/** Passes the questions of ssh to the clients that wait for the connection: the first of them asks its person. */
export class Questions {
  readonly #askers = new Set<Asker>();
  #queue: Promise<unknown> = Promise.resolve();

  /** Returns the function that removes the asker. */
  add(asker: Asker): () => void {
    this.#askers.add(asker);
    return () => this.#askers.delete(asker);
  }

  /** One question at a time. Null: nobody can answer, or nobody wants to. */
  ask(text: string): Promise<string | null> {
    const answer = this.#queue.then(() => this.#askFirst(text));
    this.#queue = answer.catch(() => undefined);
    return answer;
  }

  async #askFirst(text: string): Promise<string | null> {
    const [asker] = this.#askers;
    if (asker === undefined) return null;
    return asker({ text, isSecret: !isAboutHostKey(text) });
  }
}
