import { createHash } from 'node:crypto';
import { literalHunk } from './binary-hunk.ts';
import { isRefusedByGit, quoteName } from './git-names.ts';

/** A file or a link on one side of a patch. */
export interface PatchFile {
  /** Path below the root of the patch, as bytes. */
  readonly path: Uint8Array;
  readonly type: 'file' | 'symlink';
  /** The executable bit of a file: the only mode bit that git stores. */
  readonly executable: boolean;
  /** Bytes of `content`; for a link, of its target. */
  readonly size: number;
  /** Equal for equal content. */
  readonly contentId: string;
  /** May be called more than once. */
  readonly content: () => AsyncIterable<Uint8Array>;
}

/** One change. Two sides with different paths are a rename; a null side does not exist. */
export interface PatchChange {
  readonly before: PatchFile | null;
  readonly after: PatchFile | null;
}

/** Compares the lines of two texts; see LineThread. */
export interface LineComparison {
  hunks(before: Buffer, after: Buffer): Promise<Buffer>;
}

/** Larger files are written as binary literals. */
const MAX_TEXT_BYTES = 8 * 2 ** 20;
const NOTHING = '0'.repeat(40);

/**
 * A patch that `git apply` accepts (and `git apply -R` reverts), in chunks. Paths that git would reject are omitted and
 * passed to `onOmitted`, because one of them would make git reject the whole patch.
 */
export async function* writePatch(
  changes: AsyncIterable<PatchChange> | Iterable<PatchChange>,
  lines: LineComparison,
  onOmitted: (path: Uint8Array) => void,
): AsyncGenerator<Buffer> {
  for await (const change of changes) {
    const refused = [change.before, change.after].find(
      (file) => file !== null && isRefusedByGit(file.path, file.type === 'symlink'),
    );
    if (refused !== undefined && refused !== null) {
      onOmitted(refused.path);
      continue;
    }
    const { before, after } = change;
    if (before !== null && after !== null && before.type !== after.type) {
      // Like git: a change of type is a deletion and an addition.
      yield* writeChange({ before, after: null }, lines);
      yield* writeChange({ before: null, after }, lines);
    } else yield* writeChange(change, lines);
  }
}

async function* writeChange({ before, after }: PatchChange, lines: LineComparison): AsyncGenerator<Buffer> {
  const from = before?.path ?? after?.path;
  const to = after?.path ?? before?.path;
  if (from === undefined || to === undefined) return;
  const renamed = before !== null && after !== null && !Buffer.from(from).equals(to);
  const sameContent = before !== null && after !== null && before.contentId === after.contentId;
  const sameMode = before !== null && after !== null && modeOf(before) === modeOf(after);
  if (sameContent && sameMode && !renamed) return;

  const headers = [`diff --git ${quoteName('a/', from)} ${quoteName('b/', to)}`];
  if (before === null && after !== null) headers.push(`new file mode ${modeOf(after)}`);
  else if (before !== null && after === null) headers.push(`deleted file mode ${modeOf(before)}`);
  else if (before !== null && after !== null && !sameMode) {
    headers.push(`old mode ${modeOf(before)}`, `new mode ${modeOf(after)}`);
  }
  if (renamed) {
    headers.push(
      ...(sameContent ? ['similarity index 100%'] : []),
      `rename from ${quoteName('', from)}`,
      `rename to ${quoteName('', to)}`,
    );
  }
  if (sameContent) {
    yield headerLines(headers);
    return;
  }

  const old = await contentOf(before);
  const now = await contentOf(after);
  // The content is stored differently but has the same bytes.
  if (old.gitId === now.gitId && sameMode && !renamed) return;
  const mode = sameMode ? ` ${modeOf(after)}` : '';
  headers.push(`index ${old.gitId}..${now.gitId}${mode}`);
  if (old.text !== null && now.text !== null) {
    const hunks = old.text.equals(now.text) ? Buffer.alloc(0) : await lines.hunks(old.text, now.text);
    if (hunks.length > 0) {
      headers.push(
        `--- ${before === null ? '/dev/null' : quoteName('a/', from)}`,
        `+++ ${after === null ? '/dev/null' : quoteName('b/', to)}`,
      );
    }
    yield headerLines(headers);
    yield hunks;
    return;
  }
  headers.push('GIT binary patch');
  yield headerLines(headers);
  yield* literalHunk(after?.size ?? 0, after?.content() ?? nothing());
  yield* literalHunk(before?.size ?? 0, before?.content() ?? nothing());
}

function headerLines(headers: readonly string[]): Buffer {
  return Buffer.from(`${headers.join('\n')}\n`, 'latin1');
}

function modeOf({ type, executable }: PatchFile): string {
  if (type === 'symlink') return '120000';
  return executable ? '100755' : '100644';
}

async function* nothing(): AsyncGenerator<Uint8Array> {
  // a side that does not exist
}

/** Git's blob id of the content, and the content itself if it is text small enough to compare by lines. */
async function contentOf(file: PatchFile | null): Promise<{ gitId: string; text: Buffer | null }> {
  if (file === null) return { gitId: NOTHING, text: Buffer.alloc(0) };
  const hash = createHash('sha1').update(`blob ${file.size}\0`);
  const pieces: Uint8Array[] = [];
  let isText = file.size <= MAX_TEXT_BYTES;
  for await (const piece of file.content()) {
    hash.update(piece);
    if (isText && piece.includes(0)) isText = false;
    if (isText) pieces.push(piece);
    else pieces.length = 0;
  }
  return { gitId: hash.digest('hex'), text: isText ? Buffer.concat(pieces) : null };
}
