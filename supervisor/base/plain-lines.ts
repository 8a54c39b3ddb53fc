/** Every kind of line end, for whoever reads the text. Other control characters are replaced. */
const LINE_END = /\r\n|[\n\v\f\r\u0085\u2028\u2029]/u;
const CONTROL = /[^\t\P{Cc}]/gu;

/** The lines of a text that is quoted to an agent, whatever ends lines where it is read. No line has control characters but tabs. */
export function plainLines(text: string): string[] {
  return text.split(LINE_END).map((line) => line.replaceAll(CONTROL, '\ufffd'));
}
