import { ByteSearch } from '../egress/credentials/byte-search.ts';
import { encodedForms } from '../egress/credentials/encodings.ts';
import { partsOfSecrets, type SetupSecret } from './secret-parts.ts';

/** What is taken out of a log besides: pieces of this many bytes, as they are, of the first bytes of a long value. */
const PIECE_BYTES = 48;
const PIECES_FROM_BYTES = 4096;

/** Finds secrets in bytes: plain, in base64 at each alignment, hex, percent-encoded and as JSON. Of a value with a key in it, the key too. Errors: `setup_failed` for too many keys. */
export class SecretSearch {
  readonly #all: ByteSearch;
  readonly #redaction: SecretRedaction;
  readonly #patterns: readonly { readonly name: string; readonly forms: readonly Buffer[] }[];

  constructor(secrets: readonly SetupSecret[], redaction = new SecretRedaction(secrets)) {
    this.#redaction = redaction;
    this.#patterns = partsOfSecrets(secrets).map(({ name, parts }) => ({
      name,
      forms: parts.flatMap(encodedForms),
    }));
    this.#all = new ByteSearch(this.#patterns.flatMap(({ forms }) => forms));
  }

  /** Reads one file or stream, whose chunks may cut a secret anywhere. */
  begin(): SecretReader {
    return new SecretReader(this.#all, (bytes) => this.#namesIn(bytes));
  }

  /** A short text with the names of secrets in their place. */
  redact(text: string): string {
    const bytes = Buffer.from(text);
    return this.#all.read(bytes, 0) < 0 ? this.#redaction.redact(bytes).toString('utf8') : text;
  }

  #namesIn(bytes: Buffer): string[] {
    return this.#patterns
      .filter(({ forms }) => forms.some((form) => bytes.includes(form)))
      .map(({ name }) => name);
  }
}

export class SecretReader {
  readonly #search: ByteSearch;
  readonly #namesIn: (bytes: Buffer) => string[];
  #state = 0;
  /** The last bytes, which may be the beginning of a secret. */
  #held: Buffer = Buffer.alloc(0);

  constructor(search: ByteSearch, namesIn: (bytes: Buffer) => string[]) {
    this.#search = search;
    this.#namesIn = namesIn;
  }

  /** Names of the secrets that end in this chunk. Empty for nearly every chunk; after a hit the reader is of no more use. */
  read(chunk: Buffer): string[] {
    const state = this.#search.read(chunk, this.#state);
    if (state < 0) return this.#namesIn(Buffer.concat([this.#held, chunk]));
    this.#state = state;
    const kept = this.#search.pending(state);
    // Copied: the chunk's memory may be used again.
    this.#held =
      kept <= chunk.length
        ? Buffer.from(chunk.subarray(chunk.length - kept))
        : Buffer.concat([this.#held, chunk]).subarray(-kept);
    return [];
  }
}

/** Replaces secrets in outputs by their names. */
export class SecretRedaction {
  readonly #search: ByteSearch;
  /** The longest first: a part must not be taken out of the middle of the whole. */
  readonly #forms: readonly { readonly form: Buffer; readonly shown: Buffer }[];

  constructor(secrets: readonly SetupSecret[]) {
    this.#forms = partsOfSecrets(secrets)
      .flatMap(({ name, parts }) =>
        parts
          .flatMap((part) => [...encodedForms(part), ...piecesOf(part)])
          .map((form) => ({ form, shown: Buffer.from(`[secret ${name}]`) })),
      )
      .sort((a, b) => b.form.length - a.form.length);
    this.#search = new ByteSearch(this.#forms.map(({ form }) => form));
  }

  /** For one stream of output: nothing is passed on that may be the beginning of a secret. */
  begin(): { push(chunk: Buffer): Buffer; end(): Buffer } {
    let held: Buffer = Buffer.alloc(0);
    return {
      push: (chunk) => {
        const all = this.redact(held.length === 0 ? chunk : Buffer.concat([held, chunk]));
        const kept = this.#search.pending(this.#search.read(all, 0));
        held = Buffer.from(all.subarray(all.length - kept));
        return all.subarray(0, all.length - kept);
      },
      end: () => {
        const rest = held;
        held = Buffer.alloc(0);
        return rest;
      },
    };
  }

  /** The same bytes if there is no secret in them. */
  redact(bytes: Buffer): Buffer {
    if (this.#search.read(bytes, 0) >= 0) return bytes;
    let text = bytes;
    for (const { form, shown } of this.#forms) text = replaceAll(text, form, shown);
    // What was put in may have completed a secret that looks like it.
    return this.#search.read(text, 0) >= 0 ? text : Buffer.from('[secrets]');
  }
}

function replaceAll(bytes: Buffer, what: Buffer, by: Buffer): Buffer {
  const parts: Buffer[] = [];
  let from = 0;
  for (let at = bytes.indexOf(what); at !== -1; at = bytes.indexOf(what, from)) {
    parts.push(bytes.subarray(from, at), by);
    from = at + what.length;
  }
  return from === 0 ? bytes : Buffer.concat([...parts, bytes.subarray(from)]);
}

function piecesOf(value: Buffer): Buffer[] {
  if (value.length <= PIECE_BYTES) return [];
  const pieces: Buffer[] = [];
  const end = Math.min(value.length, PIECES_FROM_BYTES);
  for (let at = 0; at < end; at += PIECE_BYTES) {
    const start = Math.min(at, value.length - PIECE_BYTES);
    pieces.push(value.subarray(start, start + PIECE_BYTES));
  }
  return pieces;
}
