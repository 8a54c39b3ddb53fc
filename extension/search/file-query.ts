/** The prefixes with which VS Code's Quick Open shows something else than files. */
const PREFIXES = ['>', '@', ':', '#', '?', 'edt ', 'view ', 'term ', 'task ', 'debug '];
// `file:12`, `file:12:3`, `file#12`, `file(12)`, `file(12,3)`, and any of them while it is being typed.
const POSITION =
  /^(?<query>.+?)(?:[:#](?<line>\d*)(?:[:,](?<column>\d*))?|\((?<row>\d*)(?:,(?<cell>\d*))?\)?)$/;

/** Whether the typed text is for VS Code's own Quick Open: a command, a symbol, a line of the open file. */
export function isQuickOpenPrefix(value: string): boolean {
  return PREFIXES.some((prefix) => value.startsWith(prefix));
}

/** Lines and columns count from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** Splits the typed text into the query and the position in the file. */
export function parseFileQuery(value: string): {
  readonly query: string;
  readonly position: Position | undefined;
} {
  const groups = POSITION.exec(value)?.groups;
  if (groups?.['query'] === undefined) return { query: value, position: undefined };
  const line = Number(groups['line'] ?? groups['row'] ?? '');
  const column = Number(groups['column'] ?? groups['cell'] ?? '');
  const position = Number.isSafeInteger(line) && line > 0 ? { line, column: Math.max(1, column) } : undefined;
  return { query: groups['query'], position };
}
