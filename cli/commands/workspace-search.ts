import type { Command } from 'commander';
import { randomBytes } from 'node:crypto';
import { SEARCH_LIMITS, type SearchLine, type SearchParams } from '../../protocol/search.ts';
import type { Context } from '../context.ts';
import { EXIT } from '../failure.ts';
import { positiveInteger, repeated, wholeNumber } from '../option-values.ts';
import type { Registry } from '../registry.ts';
import { formatSize } from '../render/quantity.ts';
import type { Style } from '../render/style.ts';
import { formatTable } from '../render/table.ts';
import { pluralize, sanitizeLine } from '../render/text.ts';
import { parseWorkspacePath } from '../workspace-path.ts';

interface WhereOptions {
  glob?: string[];
  exclude?: string[];
  hidden?: boolean;
  ignore: boolean;
}

interface SearchOptions extends WhereOptions {
  files?: boolean;
  fixedStrings?: boolean;
  ignoreCase?: boolean;
  caseSensitive?: boolean;
  word?: boolean;
  context?: number;
  limit?: number;
}

export function registerWorkspaceSearch(registry: Registry, group: Command): void {
  const search = registry
    .command(group, {
      usage: 'search <session> <pattern> [path]',
      description: 'search the files of the workspace for a regular expression, with ripgrep',
      operands: ['session', 'none', 'none'],
      examples: [
        'holdfast workspace search SESSION "TODO|FIXME" src',
        'holdfast workspace search SESSION --files config',
      ],
    })
    .option('--files', 'search for files by name instead (fuzzy match)')
    .option('-F, --fixed-strings', 'treat the pattern as literal text')
    .option('-i, --ignore-case', 'ignore case')
    .option('-s, --case-sensitive', 'match case (default: only if the pattern has capital letters)')
    .option('-w, --word', 'match whole words only')
    .option('-C, --context <lines>', 'show this many lines before and after each match', wholeNumber)
    .option('-g, --glob <glob>', 'only files that match the glob; repeatable', repeated)
    .option('--exclude <glob>', 'skip files that match the glob; repeatable', repeated)
    .option('--hidden', 'include hidden files')
    .option('--no-ignore', 'include files ignored by .gitignore, .ignore and .rgignore')
    .option('--limit <n>', 'maximum number of results', positiveInteger(SEARCH_LIMITS.results.max));
  registry.setAction(
    search,
    async (context, options: SearchOptions, session: string, pattern: string, path: string | undefined) =>
      options.files === true
        ? findFiles(context, session, pattern, path, options)
        : searchText(context, session, pattern, path, options),
  );

  const du = registry
    .command(group, {
      usage: 'du <session> [path]',
      description: 'show disk use of the workspace by folder, largest first',
      operands: ['session', 'none'],
    })
    .option('--depth <levels>', 'how many folder levels to show (default 3)', wholeNumber)
    .option('--limit <n>', 'maximum number of folders (default 20)', positiveInteger(1000));
  registry.setAction(
    du,
    async (
      context,
      options: { depth?: number; limit?: number },
      session: string,
      path: string | undefined,
    ) => {
      const { depth, limit = 20 } = options;
      const usage = await context.call(
        'files/usage',
        {
          session,
          limit,
          ...(path === undefined ? {} : { path: parseWorkspacePath(path) }),
          ...(depth === undefined ? {} : { depth }),
        },
        { stage: 'Measuring' },
      );
      if (context.json) {
        await context.printJson(usage);
        return undefined;
      }
      const rows = formatTable(
        usage.folders,
        [
          { title: 'SIZE', value: ({ bytes }) => formatSize(bytes), align: 'right' },
          { title: 'FILES', value: ({ files }) => String(files), align: 'right' },
          { title: 'FOLDER', value: (folder) => folder.path, shrinkPriority: 1 },
        ],
        { width: context.stdout.columns, header: context.style.dim },
      );
      if (usage.folders.length > 0) await context.print(...rows);
      await context.print(`${formatSize(usage.bytes)} in ${pluralize(usage.files, 'file')} in total`);
      return undefined;
    },
  );
}

function where(
  options: WhereOptions,
  path: string | undefined,
): Pick<SearchParams, 'path' | 'include' | 'exclude' | 'hidden' | 'ignoreFiles'> {
  return {
    ...(path === undefined ? {} : { path: parseWorkspacePath(path) }),
    ...(options.glob === undefined ? {} : { include: options.glob }),
    ...(options.exclude === undefined ? {} : { exclude: options.exclude }),
    ...(options.hidden === true ? { hidden: true } : {}),
    ...(options.ignore ? {} : { ignoreFiles: false }),
  };
}

async function findFiles(
  context: Context,
  session: string,
  query: string,
  path: string | undefined,
  options: SearchOptions,
): Promise<number> {
  const limit =
    options.limit === undefined ? {} : { limit: Math.min(options.limit, SEARCH_LIMITS.names.max) };
  const found = await context.call(
    'files/find',
    { session, query, ...limit, ...where(options, path) },
    { stage: 'Searching' },
  );
  if (context.json) await context.printJson(found);
  else {
    await context.print(...found.paths.map(sanitizeLine));
    if (found.more) await context.printHint('More files match: narrow the search, or raise --limit');
  }
  return found.paths.length === 0 ? EXIT.failed : EXIT.done;
}

/** With --json prints one line of JSON per result, then the summary. Exit code 1 if nothing was found, as with grep. */
async function searchText(
  context: Context,
  session: string,
  pattern: string,
  path: string | undefined,
  options: SearchOptions,
): Promise<number> {
  const token = randomBytes(8).toString('hex');
  const peer = await context.client().peer();
  const printer = new LinePrinter(context);
  let printing = Promise.resolve();
  const unlisten = peer.onNotification('files/found', ({ token: whose, lines }) => {
    if (whose !== token) return;
    // Stop reading until the output has been written, so that a slow terminal or pipe slows the search down.
    const goOn = peer.pauseReading();
    printing = printing.then(() => printer.print(lines)).finally(goOn);
  });
  try {
    const summary = await peer.call(
      'files/search',
      {
        session,
        token,
        pattern,
        syntax: options.fixedStrings === true ? 'fixed' : 'regex',
        letterCase:
          options.ignoreCase === true ? 'ignore' : options.caseSensitive === true ? 'exact' : 'smart',
        ...(options.word === true ? { word: true } : {}),
        ...(options.context === undefined ? {} : { before: options.context, after: options.context }),
        ...(options.limit === undefined ? {} : { limit: options.limit }),
        ...where(options, path),
      },
      { signal: context.interrupted },
    );
    await printing;
    if (context.json) await context.printJson({ summary });
    else if (summary.stopped !== null) {
      const why = summary.stopped === 'limit' ? 'the limit was reached' : 'the search took too long';
      await context.printHint(`Stopped after ${pluralize(summary.matches, 'line')}: ${why}`);
    }
    return summary.matches === 0 ? EXIT.failed : EXIT.done;
  } finally {
    unlisten();
    await printing;
  }
}

/** Prints results as grep does: the file name before each line, and dashes between groups of lines. */
class LinePrinter {
  readonly #context: Context;
  #last: { readonly path: string; readonly line: number } | null = null;
  #hasContext = false;

  constructor(context: Context) {
    this.#context = context;
  }

  async print(lines: readonly SearchLine[]): Promise<void> {
    if (this.#context.json) {
      for (const line of lines) await this.#context.printJson(line);
      return;
    }
    const { style } = this.#context;
    const printed: string[] = [];
    for (const line of lines) {
      this.#hasContext ||= line.kind === 'context';
      const follows = this.#last?.path === line.path && this.#last.line + 1 === line.line;
      if (this.#hasContext && this.#last !== null && !follows) printed.push(style.dim('--'));
      const mark = line.kind === 'match' ? ':' : '-';
      const name = `${sanitizeLine(line.path)}${mark}${String(line.line)}${mark}`;
      printed.push(`${style.dim(name)}${highlighted(line, style)}`);
      this.#last = line;
    }
    await this.#context.print(...printed);
  }
}

function highlighted({ preview, previewStart, ranges }: SearchLine, style: Style): string {
  let text = '';
  let at = 0;
  for (const range of ranges) {
    const start = Math.max(at, range.start - previewStart);
    const end = Math.min(preview.length, range.end - previewStart);
    if (end <= start) continue;
    text += sanitizeLine(preview.slice(at, start)) + style.red(sanitizeLine(preview.slice(start, end)));
    at = end;
  }
  return text + sanitizeLine(preview.slice(at));
}
