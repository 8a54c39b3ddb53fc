/** Commands that concern this machine alone, that name their host themselves, or whose machine a person has to log in to. */
const OF_NO_HOST = /^(?:host|init|completion|supervisor logs)\b|(?:^| )--(?:host|help)\b/;

/** The command of ours as a person runs it for the machine. `host`: null for this one. */
export function commandOn(host: string | null, words: string): string {
  if (host === null || OF_NO_HOST.test(words)) return `holdfast ${words}`;
  // What follows the dashes belongs to the sandbox.
  const [, ours = words, theirs = ''] = /^((?:exec|terminal open) .*?)( -- .*)$/.exec(words) ?? [];
  return `holdfast ${ours} --host ${host}${theirs}`;
}

/** The text with each command in backticks as a person runs it for the machine. */
export function withHost(text: string, host: string | null): string {
  if (host === null) return text;
  return text.replaceAll(/`holdfast ([^`]+)`/g, (_, words: string) => `\`${commandOn(host, words)}\``);
}
