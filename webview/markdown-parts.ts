import type MarkdownIt from 'markdown-it';
import type { Token } from 'markdown-it';
import { plain } from './format.ts';

/** Longer texts are shown as they are: nobody reads them formatted. */
const MAX_MARKDOWN = 200_000;

/** From so many characters on, a part of a text ends with its block. */
const PART = 2000;

/** The parts of a text that is shown as it is. */
const UNFORMATTED_PART = 20_000;

type Parser = InstanceType<typeof MarkdownIt>;
export type Env = NonNullable<Parameters<Parser['render']>[1]>;
type References = NonNullable<Env['references']>;

/** Whole blocks of a text. */
export interface MarkdownPart {
  readonly source: string;
  /** What the whole text says that links such as `[1]` lead to, as JSON; null for a part that is shown as it is. */
  readonly references: string | null;
}

/**
 * A text in parts that can be rendered on their own. While the text grows, only its last parts are parsed again and change, so
 * that a long message does not hold up the page with every word that the agent adds.
 */
export class GrowingMarkdown {
  readonly #parser: Parser;
  /** Parts that nothing changes that comes after them. */
  #complete: readonly string[] = [];
  /** Their text. */
  #begin = '';
  /** What they say that links lead to. */
  #references: References = {};

  constructor(parser: Parser) {
    this.#parser = parser;
  }

  /** The text as it is now; quick if it is the one of the last call, and more. */
  parts(text: string): MarkdownPart[] {
    const source = plain(text);
    if (source.length > MAX_MARKDOWN) return unformatted(source);
    if (!source.startsWith(this.#begin)) this.#forget();
    const { references, cut } = this.#cut(source.slice(this.#begin.length));
    const json = JSON.stringify(references);
    const parts = [...this.#complete, ...cut].map((part) => ({ source: part, references: json }));
    // The line with which the last part begins may still become another one, and then belong to the part before it.
    if (cut.length > 2) this.#keep(cut.slice(0, -2));
    return parts;
  }

  #forget(): void {
    this.#complete = [];
    this.#begin = '';
    this.#references = {};
  }

  #keep(parts: readonly string[]): void {
    const text = `${parts.join('\n')}\n`;
    this.#references = this.#cut(text).references;
    this.#complete = [...this.#complete, ...parts];
    this.#begin += text;
  }

  /** Cuts what comes after the complete parts. */
  #cut(source: string): { readonly references: References; readonly cut: readonly string[] } {
    const env: Env = { references: { ...this.#references } };
    const tokens: Token[] = [];
    this.#parser.block.parse(source, this.#parser, env, tokens);
    const lines = source.split('\n');
    const cut: string[] = [];
    let begin = 0;
    let characters = 0;
    let line = 0;
    for (const { map, level } of tokens) {
      if (map === null || level > 0) continue;
      for (; line < map[0]; line += 1) characters += lines[line]?.length ?? 0;
      if (characters < PART) continue;
      cut.push(lines.slice(begin, map[0]).join('\n'));
      begin = map[0];
      characters = 0;
    }
    cut.push(lines.slice(begin).join('\n'));
    return { references: env.references ?? {}, cut };
  }
}

/** In parts of whole lines, because the browser lays out a part as a whole. */
function unformatted(source: string): MarkdownPart[] {
  const parts: MarkdownPart[] = [];
  for (let begin = 0; begin < source.length;) {
    const lineEnd = source.indexOf('\n', begin + UNFORMATTED_PART);
    const end = lineEnd === -1 ? source.length : lineEnd;
    parts.push({ source: source.slice(begin, end), references: null });
    begin = end + 1;
  }
  return parts;
}
