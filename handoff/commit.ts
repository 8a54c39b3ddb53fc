import { HoldfastError } from '../protocol/errors.ts';
import { fromBytes, type RawPath, readable, toBytes } from '../project/raw-path.ts';
import type { Contents } from './contents.ts';
import type { Git } from './git.ts';
import { type CommittedEntry, readCommit } from './repository.ts';
import type { Edit } from './resolve.ts';
import { blobOf } from './working-files.ts';

/** A branch that never exists: the import takes it back before it ends. */
const SCRATCH = 'refs/holdfast/import';
const NO_COMMIT = '0'.repeat(40);
const BATCH_BYTES = 2 ** 20;
/** Of zlib: what git takes for objects that are stored one by one. */
const FAST = 1;

/** Stores the edited files and returns the tree that a commit becomes with them. No reference is made. */
export async function writeTree(
  git: Git,
  onto: string | null,
  edits: readonly Edit[],
  contents: Contents,
): Promise<string> {
  // Compressed as git compresses single objects, and without a search for differences between files that stand side by side.
  const command = ['-c', `pack.compression=${FAST}`, 'fast-import', '--depth=0', '--quiet', '--done'];
  const output = await git.text([...command, '--date-format=raw'], {
    input: importStream(onto, edits, contents),
    what: 'The files could not be stored in the repository',
  });
  const tree = /^040000 tree ([0-9a-f]{40})\t$/.exec(output)?.[1];
  if (tree === undefined) throw new HoldfastError('internal', 'git fast-import named no tree');
  const changed = await changedFrom(git, onto, tree);
  if (onto !== null) requireOnly(changed, edits);
  // A merge may have found that all of the agent's changes are there already.
  const isListed = edits.every(({ path, content }) => content === null || changed.has(path));
  requireStored(isListed ? changed : await readCommit(git, tree), edits);
  return tree;
}

/** What differs from a commit, as the tree has it; null where it has nothing. Without a commit: all of the tree. */
async function changedFrom(
  git: Git,
  onto: string | null,
  tree: string,
): Promise<ReadonlyMap<RawPath, CommittedEntry | null>> {
  if (onto === null) return await readCommit(git, tree);
  const command = ['diff-tree', '-r', '-z', '--raw', '--no-abbrev', '--no-renames', onto, tree];
  const parts = fromBytes(await git.bytes(command)).split('\0');
  const changed = new Map<RawPath, CommittedEntry | null>();
  for (let at = 0; at + 1 < parts.length; at += 2) {
    const [, mode = '', , blob = ''] = (parts[at] ?? '').split(' ');
    changed.set(parts[at + 1] ?? '', blob === NO_COMMIT ? null : { mode, blob });
  }
  return changed;
}

/** Errors: `internal` if the tree has other bytes than the supervisor sent. */
function requireStored(stored: ReadonlyMap<RawPath, CommittedEntry | null>, edits: readonly Edit[]): void {
  for (const { path, content } of edits) {
    if (content === null) continue;
    const blob = Buffer.isBuffer(content) ? blobOf(content) : content.blob;
    if (stored.get(path)?.blob === blob) continue;
    throw new HoldfastError('internal', 'The commit was not made', {
      why: `the content of ${readable(path)} was damaged on its way`,
      next: 'check whether the disk of temporary files is full, and hand off again',
    });
  }
}

/** A path that becomes a file takes everything below it away. Errors: `internal` if the tree differs where no edit is. */
function requireOnly(changed: ReadonlyMap<RawPath, unknown>, edits: readonly Edit[]): void {
  const edited = new Set(edits.map(({ path }) => path));
  const other = [...changed.keys()].filter((path) => !edited.has(path));
  if (other.length === 0) return;
  throw new HoldfastError('internal', 'The commit was not made', {
    why: `it would change ${other.length} files that are not handed off, such as ${readable(other[0] ?? '')}`,
  });
}

/** Composed here, from checked paths: no program of ours or of git's ever reads the agent's folder. */
async function* importStream(
  onto: string | null,
  edits: readonly Edit[],
  contents: Contents,
): AsyncGenerator<Buffer, void, undefined> {
  let pending: Buffer[] = [];
  let size = 0;
  const add = (part: Buffer): void => {
    pending.push(part);
    size += part.length;
  };
  const take = (): Buffer => {
    const bytes = Buffer.concat(pending);
    pending = [];
    size = 0;
    return bytes;
  };
  add(Buffer.from(`commit ${SCRATCH}\nmark :1\ncommitter Holdfast <> 0 +0000\ndata 0\n\n`));
  if (onto !== null) add(Buffer.from(`from ${onto}\n`));
  // A folder may become a file and the other way round, so everything that goes away goes first.
  for (const { path, mode } of edits) if (mode === null) add(Buffer.from(`D ${quoted(path)}\n`, 'latin1'));
  for (const { path, mode, content } of edits) {
    if (mode === null || content === null) continue;
    const length = Buffer.isBuffer(content) ? content.length : content.size;
    add(Buffer.from(`M ${mode} inline ${quoted(path)}\ndata ${length}\n`, 'latin1'));
    if (Buffer.isBuffer(content)) add(content);
    else
      for await (const piece of contents.read(content)) {
        add(piece);
        if (size > BATCH_BYTES) yield take();
      }
    add(NEWLINE);
    if (size > BATCH_BYTES) yield take();
  }
  // The empty line ends the commit: `ls` may be a part of one.
  add(Buffer.from(`\nls :1 ""\nreset ${SCRATCH}\nfrom ${NO_COMMIT}\n\ndone\n`));
  yield take();
}
const NEWLINE = Buffer.from('\n');

/** Every byte that is not plain is escaped, so no path can end its line. */
function quoted(path: RawPath): string {
  const escaped = [...toBytes(path)].map((byte) =>
    byte >= 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x5c
      ? String.fromCharCode(byte)
      : `\\${byte.toString(8).padStart(3, '0')}`,
  );
  return `"${escaped.join('')}"`;
}

export interface CommitOptions {
  readonly tree: string;
  readonly parent: string | null;
  /** With its trailers. */
  readonly message: string;
}

/** A commit in the person's name, signed if the person signs commits. Errors: `conflict` with what git said. */
export async function commitTree(git: Git, { tree, parent, message }: CommitOptions): Promise<string> {
  const isSigned = (await git.ask(['config', '--type=bool', '--get', 'commit.gpgSign'])) === 'true';
  const command = [
    'commit-tree',
    tree,
    ...(parent === null ? [] : ['-p', parent]),
    ...(isSigned ? ['-S'] : []),
  ];
  return await git.text([...command, '-F', '-'], {
    input: Buffer.from(message, 'utf8'),
    what: isSigned ? 'The commit could not be made and signed' : 'The commit could not be made',
  });
}

const MAX_SUBJECT = 72;
const CONTROL = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu;

/** A message for a session's changes: the last prompt as its subject. */
export function proposeMessage(sessionName: string, prompts: readonly string[]): string {
  const prompt = (prompts.at(-1) ?? '').replaceAll(CONTROL, ' ').replaceAll(/ {2,}/g, ' ').trim();
  const characters = Array.from(prompt);
  if (characters.length === 0) return `Changes of session ${sessionName.replaceAll(CONTROL, ' ')}`;
  if (characters.length <= MAX_SUBJECT) return prompt;
  return `${characters.slice(0, MAX_SUBJECT - 1).join('')}…`;
}

/** The message with the trailers that name the session and its manifest. */
export function withTrailers(message: string, session: string, manifest: string): string {
  return `${message.trimEnd()}\n\nHoldfast-Session: ${session}\nHoldfast-Manifest: ${manifest}\n`;
}
