import { EventEmitter, workspace } from 'vscode';
import type { Disposable, QuickDiffProvider, TextDocumentContentProvider, Uri } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import { parseSessionAuthority } from '../../protocol/links.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { Connection } from '../connection/connection.ts';
import { SCHEME, locate } from '../files/location.ts';
import type { Homes, WorkspaceFile } from '../files/location.ts';
import { changeUri } from './change-uri.ts';

/** `holdfast-accepted://<session>.<home id>/workspace/…?path=…`: a file of the accepted tree, as text. */
const ACCEPTED_SCHEME = 'holdfast-accepted';

export function acceptedUri(homes: Pick<Homes, 'of'>, { session, path }: WorkspaceFile): Uri {
  return changeUri(homes, session, { path, id: '' }, 'base').with({
    scheme: ACCEPTED_SCHEME,
    query: new URLSearchParams({ path }).toString(),
  });
}

/** The inverse of `acceptedUri`; undefined for everything else, because anybody can make up a URI. */
function acceptedFile({ scheme, authority, query }: Uri): WorkspaceFile | undefined {
  const session = parseSessionAuthority(authority)?.id;
  const path = new URLSearchParams(query).get('path');
  if (scheme !== ACCEPTED_SCHEME || session === undefined || path === null) return undefined;
  return path.startsWith(`${WORKSPACE}/`) ? { session, path } : undefined;
}

/** The file of a session's workspace that a URI names; undefined for any other. */
export function workspaceFile(uri: Uri): WorkspaceFile | undefined {
  const place = uri.scheme === SCHEME ? locate(uri) : undefined;
  return place?.kind === 'workspace' ? { session: place.session, path: place.path } : undefined;
}

/** The accepted tree's files, with which the gutter of open files is compared. They change with each decision. */
export class AcceptedTexts implements TextDocumentContentProvider, Disposable {
  readonly #connection: Pick<Connection, 'callWithBytes' | 'of'>;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri>());
  readonly onDidChange = this.#changed.event;

  constructor(connection: Pick<Connection, 'callWithBytes' | 'of'>) {
    this.#connection = connection;
    this.#owned.add(workspace.registerTextDocumentContentProvider(ACCEPTED_SCHEME, this));
  }

  /** For the Source Control entry of a session's review. */
  quickDiffOf(session: string): QuickDiffProvider {
    return {
      provideOriginalResource: (uri) => {
        const file = workspaceFile(uri);
        return file?.session === session ? acceptedUri(this.#connection, file) : undefined;
      },
    };
  }

  /** After a decision, or with a newer target. */
  refresh(session: string): void {
    for (const { uri } of workspace.textDocuments) {
      if (uri.scheme === ACCEPTED_SCHEME && acceptedFile(uri)?.session === session) this.#changed.fire(uri);
    }
  }

  /** Empty where the tree has no file, so that all lines of a new file count. Errors: for a file without a gutter. */
  async provideTextDocumentContent(uri: Uri): Promise<string> {
    const file = acceptedFile(uri);
    if (file === undefined) throw new HoldfastError('invalid_params', 'This is no file of a review');
    try {
      const read = { ...file, side: 'accepted' } as const;
      const { result, bytes, release } = await this.#connection.callWithBytes('review/read', read);
      const isWhole = bytes.length >= result.size;
      const text = isWhole ? Buffer.from(bytes).toString('utf8') : '';
      release();
      if (!isWhole)
        throw new HoldfastError('not_supported', 'The file is too large to be compared line by line');
      return text;
    } catch (error) {
      if (HoldfastError.from(error).code.startsWith('file_')) return '';
      throw error;
    }
  }

  dispose(): void {
    this.#owned.dispose();
  }
}
