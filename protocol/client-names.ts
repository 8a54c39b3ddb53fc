const PLACES: Readonly<Record<string, string>> = {
  'holdfast-cli': 'on the command line',
  'holdfast-vscode': 'in VS Code',
};

/** Where a client was used, given its name as in `hello`: `in VS Code`, `on the command line`, else `by NAME`. */
export function placeOfClient(name: string): string {
  return PLACES[name] ?? `by ${name}`;
}
