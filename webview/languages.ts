export const LANGUAGES = [
  ...(['bash', 'diff', 'go', 'ini', 'json', 'python', 'rust', 'typescript', 'xml', 'yaml'] as const),
] as const;
/** A language in which code is coloured. */
export type Language = (typeof LANGUAGES)[number];

/** What agents call a language, and what files of it end with. */
const NAMES: Readonly<Record<Language, readonly string[]>> = {
  bash: ['sh', 'shell', 'zsh', 'console', 'shellscript'],
  diff: ['patch'],
  go: ['golang'],
  ini: ['toml', 'conf', 'cfg', 'properties'],
  json: ['jsonc', 'json5', 'jsonl'],
  python: ['py', 'pyi'],
  rust: ['rs'],
  typescript: ['ts', 'tsx', 'mts', 'cts', 'javascript', 'js', 'jsx', 'mjs', 'cjs'],
  xml: ['html', 'svg', 'vue', 'xhtml'],
  yaml: ['yml'],
};
const BY_NAME = new Map<string, Language>(
  LANGUAGES.flatMap((language) => [language, ...NAMES[language]].map((name) => [name, language] as const)),
);

/** The language of this name, or of files that end with it; undefined for one that is shown plain. */
export function languageNamed(name: string): Language | undefined {
  return BY_NAME.get(name.trim().toLowerCase());
}
