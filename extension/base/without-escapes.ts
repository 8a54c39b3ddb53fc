/**
 * Sequences that a terminal obeys: colours and movements (CSI), titles and links (OSC), and those of two characters. Linear for any
 * text, which `stripVTControlCharacters` of Node is not: half a megabyte of unfinished sequences took it minutes.
 */
const ESCAPES = new RegExp(
  [
    String.raw`\x1b\[[0-?]*[ -/]*[@-~]`,
    String.raw`\x1b\][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?`,
    String.raw`\x1b[@-Z\\^_]`,
  ].join('|'),
  'g',
);

/** The text without what only a terminal understands. */
export function withoutEscapes(text: string): string {
  return text.replace(ESCAPES, '');
}
