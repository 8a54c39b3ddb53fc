import { workspace } from 'vscode';
import type { Disposable, TextDocumentContentProvider, Uri } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ReviewFile } from '../../protocol/review.ts';
import type { Connection } from '../connection/connection.ts';
import { textsOf } from './change-texts.ts';
import type { SideContent, SideTexts } from './change-texts.ts';
import { REVIEW_SCHEME, shownChange } from './change-uri.ts';
import type { ShownChange, Side } from './change-uri.ts';

const STALE = 'This change is not part of the review any more. Open it again from the Source Control view.\n';
/** Both sides of a change are asked for at the same time. */
const KEPT_CHANGES = 20;

/** Paths of a folder that a note lists. */
const MAX_LISTED = 500;

/** The sides of changes as read-only texts. Each belongs to one version of the change, so it never shows another one. */
export class ReviewDocuments implements TextDocumentContentProvider, Disposable {
  readonly #connection: Pick<Connection, 'call' | 'callWithBytes' | 'of'>;
  readonly #registration = workspace.registerTextDocumentContentProvider(REVIEW_SCHEME, this);
  readonly #texts = new Map<string, Promise<SideTexts | undefined>>();

  constructor(connection: Pick<Connection, 'call' | 'callWithBytes' | 'of'>) {
    this.#connection = connection;
  }

  dispose(): void {
    void this.#registration.dispose();
  }

  async provideTextDocumentContent(uri: Uri): Promise<string> {
    const shown = shownChange(uri);
    if (shown === undefined) return STALE;
    return (await this.#textsOf(shown))?.[shown.side] ?? STALE;
  }

  #textsOf(shown: ShownChange): Promise<SideTexts | undefined> {
    const key = `${shown.session} ${shown.id}`;
    const known = this.#texts.get(key);
    if (known !== undefined) return known;
    const texts = this.#load(shown);
    this.#texts.set(key, texts);
    // What failed is tried again.
    void texts.catch(() => this.#texts.delete(key));
    const [oldest] = this.#texts.keys();
    if (this.#texts.size > KEPT_CHANGES && oldest !== undefined) this.#texts.delete(oldest);
    return texts;
  }

  /** Undefined where the path has another change now, or none. */
  async #load({ session, path, id }: ShownChange): Promise<SideTexts | undefined> {
    try {
      const { file } = await this.#connection.call('review/file', { session, path });
      if (file.id !== id) return undefined;
      const base = await this.#read(session, file, 'base');
      const target = await this.#read(session, file, 'target');
      const { file: after } = await this.#connection.call('review/file', { session, path });
      return after.id === id ? textsOf(file, base, target) : undefined;
    } catch (error) {
      if (HoldfastError.from(error).code === 'not_found') return undefined;
      throw error;
    }
  }

  /** Null where this side has nothing to show as text. */
  async #read(session: string, file: ReviewFile, side: Side): Promise<SideContent | null> {
    const isThere = side === 'base' ? file.kind !== 'added' : file.kind !== 'deleted';
    if (!isThere || file.kind === 'mode') return null;
    const path = side === 'base' ? (file.oldPath ?? file.path) : file.path;
    // Reading follows links, and what a link leads to is not what changed.
    const note =
      file.type === 'file' && file.kind !== 'typechange' ? null : await this.#note(session, path, side);
    if (note !== null) return contentOf(`${note} It is accepted or rejected as a whole.\n`);
    try {
      const read = { session, path, side };
      const { result, bytes, release } = await this.#connection.callWithBytes('review/read', read);
      const own = Buffer.from(bytes);
      release();
      return { size: result.size, bytes: own };
    } catch (error) {
      const { code, message } = HoldfastError.from(error);
      if (!code.startsWith('file_')) throw error;
      return contentOf(`${message}. It is accepted or rejected as a whole.\n`);
    }
  }

  /** What one side is that is no file; null for a file. */
  async #note(session: string, path: string, side: Side): Promise<string | null> {
    const { review } = await this.#connection.call('review/show', { session });
    const snapshot = review[side].snapshotId;
    if (snapshot === null) return 'What this was before is known to the supervisor alone.';
    const { type, link } = await this.#connection
      .of(session)
      .call('files/stat', { snapshot, path, follow: false });
    if (type === 'file') return null;
    if (link !== null) return `Symbolic link to ${JSON.stringify(link)}.`;
    return type === 'directory'
      ? `${await this.#listing(session, snapshot, path)}This is a directory.`
      : `This is a ${type}.`;
  }

  /** What is below a folder, one path and its size a line: it is decided with the folder. */
  async #listing(session: string, snapshot: string, root: string): Promise<string> {
    const lines: string[] = [];
    const folders = [root];
    let rest = false;
    for (let folder = folders.shift(); folder !== undefined; folder = folders.shift()) {
      const left = MAX_LISTED - lines.length;
      if (left <= 0) {
        rest = true;
        break;
      }
      const { entries, nextCursor } = await this.#connection
        .of(session)
        .call('files/list', { snapshot, path: folder, limit: left });
      rest ||= nextCursor !== null;
      for (const { name, type, size } of entries) {
        const path = `${folder}/${name}`;
        if (type === 'directory') folders.push(path);
        const what = type === 'file' ? `${String(size)} bytes` : type;
        lines.push(`${JSON.stringify(path.slice(root.length + 1))} ${what}\n`);
      }
    }
    return [...lines, ...(rest ? ['and more\n'] : []), '\n'].join('');
  }
}

function contentOf(text: string): SideContent {
  const bytes = Buffer.from(text);
  return { size: bytes.length, bytes };
}
