import { SEARCH_LIMITS, type FindParams, type SearchParams } from '../../protocol/search.ts';

type Where = Pick<SearchParams, 'include' | 'exclude' | 'hidden' | 'ignoreFiles'>;

/** Options that always apply: read no configuration, follow no links, stay on the file system, run no programs. */
const ALWAYS = [
  '--no-config',
  '--no-follow',
  '--one-file-system',
  '--no-messages',
  '--no-ignore-parent',
  '--no-ignore-global',
  '--no-require-git',
  // A file that shrinks while it is mapped would kill the process.
  '--no-mmap',
  '--threads=2',
];

/** Every value is joined to its option, so that none can be read as another option. */
export function textArguments(params: SearchParams): string[] {
  const { syntax, letterCase, word, sort, before, after, maxFileSize, pattern } = params;
  return [
    ...ALWAYS,
    '--json',
    // Unconverted bytes, so that each line can be verified in the file.
    '--encoding=none',
    { exact: '--case-sensitive', ignore: '--ignore-case', smart: '--smart-case' }[letterCase ?? 'smart'],
    ...(syntax === 'fixed' ? ['--fixed-strings'] : []),
    ...(word === true ? ['--word-regexp'] : []),
    ...(sort === 'path' ? ['--sort=path'] : []),
    `--before-context=${String(before ?? 0)}`,
    `--after-context=${String(after ?? 0)}`,
    `--max-filesize=${String(maxFileSize ?? SEARCH_LIMITS.fileSize.default)}`,
    ...whereArguments(params),
    `--regexp=${pattern}`,
    '--',
    '.',
  ];
}

export function nameArguments(params: FindParams): string[] {
  return [...ALWAYS, '--files', '--null', ...whereArguments(params), '--', '.'];
}

function whereArguments({ include, exclude, hidden, ignoreFiles }: Where): string[] {
  return [
    hidden === true ? '--hidden' : '--no-hidden',
    ...(ignoreFiles === false ? ['--no-ignore'] : []),
    ...(include ?? []).map((glob) => `--glob=${glob.replace(/^!/, '\\!')}`),
    ...(exclude ?? []).map((glob) => `--glob=!${glob}`),
  ];
}
