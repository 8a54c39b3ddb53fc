/** What programs are told of the terminal that this process runs in. */
export function terminalEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const { TERM: term, COLORTERM: colours = '' } = env;
  return { ...(term === undefined ? {} : { TERM: term }), ...(colours === '' ? {} : { COLORTERM: colours }) };
}
