/** The variables that describe the terminal of this process to programs. */
export function terminalEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const { TERM: term, COLORTERM: colours = '' } = env;
  return { ...(term === undefined ? {} : { TERM: term }), ...(colours === '' ? {} : { COLORTERM: colours }) };
}
