import { isUtf8 } from 'node:buffer';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { HoldfastError } from '../../protocol/errors.ts';
import { FILE_CHUNK_BYTES, type FileEntry } from '../../protocol/files.ts';
import { baseName } from '../../protocol/paths.ts';
import type { Context } from '../context.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime, formatSize } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';
import { pluralize } from '../render/text.ts';
import { encodedBasename, Upload } from '../upload.ts';
import { parseWorkspacePath } from '../workspace-path.ts';

export function registerWorkspaceFiles(registry: Registry, group: Command): void {
  const ls = registry
    .command(group, {
      usage: 'ls <session> [path]',
      description: 'list a folder of the workspace; works without a running sandbox',
      operands: ['session', 'none'],
      examples: [
        'holdfast workspace ls SESSION',
        'holdfast workspace ls SESSION src --json',
        'holdfast workspace ls SESSION src --snapshot snp-…',
      ],
    })
    .option('--snapshot <id>', 'list the files of this snapshot');
  registry.setAction(
    ls,
    async (context, options: FromSnapshot, session: string, path: string | undefined) => {
      const entries = await listed(context, { session, ...options }, parseWorkspacePath(path ?? ''));
      if (context.json) await context.printJson({ entries });
      else await context.print(...rows(context, entries));
      return undefined;
    },
  );

  const cat = registry
    .command(group, {
      usage: 'cat <session> <paths...>',
      description: 'print files of the workspace byte for byte',
      operands: ['session', 'none'],
    })
    .option('--snapshot <id>', 'read the files of this snapshot');
  registry.setAction(cat, async (context, options: FromSnapshot, session: string, paths: string[]) => {
    const source = { session, ...options };
    if (context.json) {
      await context.printJson({ files: await contents(context, source, paths.map(parseWorkspacePath)) });
      return undefined;
    }
    for (const path of paths) {
      await pieces(context, source, parseWorkspacePath(path), async (bytes) => {
        await context.stdout.write(bytes);
        await context.stdout.flush();
      });
    }
    return undefined;
  });

  const put = registry
    .command(group, {
      usage: 'put <session> <paths...>',
      description:
        'upload local files and folders (or - for standard input) to the last path, which is in the workspace',
      operands: ['session', 'none'],
      examples: [
        'holdfast workspace put SESSION notes.md /workspace/notes.md',
        'holdfast workspace put SESSION src docs project/',
      ],
    })
    .option('--no-clobber', 'fail if a file exists instead of replacing it');
  registry.setAction(
    put,
    async (context, options: { clobber: boolean }, session: string, paths: string[]) => {
      const upload = new Upload(context, { session, keepExisting: !options.clobber });
      context.progress.begin('Uploading');
      try {
        for (const [local, remote] of await destinations(context, session, paths)) {
          if (local === '-') {
            await upload.sendStream(context.io.stdin as AsyncIterable<string | Buffer>, remote);
          } else await upload.send(resolve(context.io.cwd, local), remote);
        }
      } finally {
        context.progress.end();
      }
      const { files, bytes, skipped } = upload.counts;
      if (context.json) await context.printJson(upload.counts);
      else await context.print(`Uploaded ${pluralize(files, 'file')} (${formatSize(bytes)})`);
      if (skipped > 0)
        await context.printHint(
          `Skipped ${pluralize(skipped, 'link or special file', 'links and special files')}`,
        );
      return undefined;
    },
  );

  const rm = registry
    .command(group, {
      usage: 'rm <session> <paths...>',
      description: 'delete files of the workspace, and folders with -r',
      operands: ['session', 'none'],
    })
    .option('-r, --recursive', 'delete folders and everything in them');
  registry.setAction(
    rm,
    async (context, options: { recursive?: boolean }, session: string, paths: string[]) => {
      const removed = { files: 0, bytes: 0 };
      for (const path of paths.map(parseWorkspacePath)) {
        const params = { session, path, recursive: options.recursive === true };
        const done = await context.call('files/delete', params, { stage: 'Deleting' }).catch(explainFolder);
        removed.files += done.files;
        removed.bytes += done.bytes;
      }
      if (context.json) await context.printJson(removed);
      else await context.print(`Deleted ${pluralize(removed.files, 'file')} (${formatSize(removed.bytes)})`);
      return undefined;
    },
  );
}

interface FromSnapshot {
  snapshot?: string;
}

/** The files of a session, or of one of its snapshots. */
interface Source {
  readonly session: string;
  readonly snapshot?: string;
}

function ofSource({ session, snapshot }: Source): Source {
  return snapshot === undefined ? { session } : { session, snapshot };
}

/** All entries of a folder, or the one of a file. */
async function listed(context: Context, source: Source, path: string): Promise<FileEntry[]> {
  const entries: FileEntry[] = [];
  try {
    for (let cursor: string | undefined; ;) {
      const page = await context.call(
        'files/list',
        { ...ofSource(source), path, ...(cursor === undefined ? {} : { cursor }) },
        { stage: 'Listing' },
      );
      for (const entry of page.entries) entries.push(entry);
      if (page.nextCursor === null) return entries;
      cursor = page.nextCursor;
    }
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== 'file_not_a_directory') throw error;
    const { version: _version, ...stat } = await context.call('files/stat', {
      ...ofSource(source),
      path,
      follow: false,
    });
    return [{ name: baseName(path), ...stat }];
  }
}

function rows(context: Context, entries: readonly FileEntry[]): string[] {
  if (entries.length === 0) return [];
  const { style, io, stdout } = context;
  return formatTable(
    entries,
    [
      { title: 'MODE', value: modeText },
      {
        title: 'SIZE',
        value: (one) => (one.type === 'directory' ? '' : formatSize(one.size)),
        align: 'right',
      },
      {
        title: 'MODIFIED',
        value: (one) => formatRelativeTime(new Date(one.mtimeMs).toISOString(), io.now()),
        paint: () => style.dim,
      },
      { title: 'NAME', value: nameText },
    ],
    { width: stdout.columns, header: style.dim },
  );
}

const TYPE_LETTERS: Readonly<Record<FileEntry['type'], string>> = {
  file: '-', directory: 'd', symlink: 'l', fifo: 'p', socket: 's', device: 'b',
}; // prettier-ignore

function modeText({ type, mode }: FileEntry): string {
  const bits = ['r', 'w', 'x', 'r', 'w', 'x', 'r', 'w', 'x'].map((letter, at) =>
    (mode & (0o400 >> at)) === 0 ? '-' : letter,
  );
  return TYPE_LETTERS[type] + bits.join('');
}

function nameText({ name, type, link }: FileEntry): string {
  if (link !== null) return `${name} → ${link}`;
  return type === 'directory' ? `${name}/` : name;
}

/** Maximum total size of file contents in one JSON document. */
const DOCUMENT_BYTES = 16 * 2 ** 20;

interface FileContent {
  readonly path: string;
  readonly bytes: number;
  /** For a UTF-8 file. Other files have `base64`. */
  readonly text?: string;
  readonly base64?: string;
}

/** Errors: `file_too_large` if the files do not fit into one document. */
async function contents(context: Context, source: Source, paths: readonly string[]): Promise<FileContent[]> {
  const files: FileContent[] = [];
  let total = 0;
  for (const path of paths) {
    const parts: Buffer[] = [];
    await pieces(context, source, path, (bytes) => {
      total += bytes.length;
      if (total > DOCUMENT_BYTES) {
        throw new HoldfastError('file_too_large', `${path} cannot be printed as JSON`, {
          why: `one document holds at most ${formatSize(DOCUMENT_BYTES)} of file contents`,
          next: 'omit --json to get the raw bytes',
        });
      }
      // Copy: the buffer is reused for the next chunk.
      parts.push(Buffer.from(bytes));
      return Promise.resolve();
    });
    const content = Buffer.concat(parts);
    const shown = isUtf8(content)
      ? { text: content.toString('utf8') }
      : { base64: content.toString('base64') };
    files.push({ path, bytes: content.length, ...shown });
  }
  return files;
}

/** Reads one chunk ahead, so that reading and writing overlap. `take` owns a chunk until its promise settles. */
async function pieces(
  context: Context,
  source: Source,
  path: string,
  take: (bytes: Buffer) => Promise<void>,
): Promise<void> {
  const piece = (offset: number) =>
    context
      .client()
      .callWithBytes(
        'files/read',
        { ...ofSource(source), path, offset, length: FILE_CHUNK_BYTES },
        { signal: context.interrupted },
      );
  let next = piece(0);
  for (let offset = 0; ;) {
    const { result, bytes, release } = await next;
    offset += bytes.length;
    const more = bytes.length > 0 && offset < result.size;
    if (more) {
      next = piece(offset);
      // If writing fails first, nobody awaits this read.
      next.catch(() => undefined);
    }
    await take(bytes);
    release();
    if (!more) return;
  }
}

/** Maps local paths to workspace paths as `cp` does: into an existing folder, otherwise to exactly the given path. */
async function destinations(
  context: Context,
  session: string,
  paths: readonly string[],
): Promise<[string, string][]> {
  const locals = paths.slice(0, -1);
  const typed = paths.at(-1);
  if (typed === undefined || locals.length === 0) {
    throw new HoldfastError('invalid_params', 'Nothing was uploaded', {
      why: 'the destination is missing',
      next: 'use: holdfast workspace put SESSION LOCAL… REMOTE',
    });
  }
  const remote = parseWorkspacePath(typed);
  const into = typed.endsWith('/') || locals.length > 1 || (await isFolder(context, session, remote));
  if (!into) return locals.map((local) => [local, remote]);
  if (locals.includes('-')) {
    throw new HoldfastError('invalid_params', 'Nothing was uploaded', {
      why: 'standard input has no file name',
      next: 'give the full path of the file to write',
    });
  }
  const params = { session, path: remote, parents: true };
  await context.call('files/mkdir', params, { stage: 'Uploading' });
  return locals.map((local) => [local, `${remote}/${encodedBasename(resolve(context.io.cwd, local))}`]);
}

async function isFolder(context: Context, session: string, path: string): Promise<boolean> {
  try {
    return (await context.call('files/stat', { session, path }, { stage: 'Uploading' })).type === 'directory';
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'file_not_found') return false;
    throw error;
  }
}

function explainFolder(error: unknown): never {
  if (error instanceof HoldfastError && error.code === 'directory_not_empty') {
    throw new HoldfastError(error.code, error.message, {
      next: 'add -r to delete the folder with its contents',
      cause: error,
    });
  }
  throw error;
}
