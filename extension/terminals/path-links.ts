import {
  FileType,
  Position,
  Range,
  TerminalLink,
  commands,
  window,
  workspace,
  type CancellationToken,
  type Terminal,
  type TerminalLinkContext,
  type TerminalLinkProvider,
  type Uri,
} from 'vscode';
import type { Connection } from '../connection/connection.ts';
import { workspaceUri } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import {
  type PathReference,
  workspaceCandidates,
  pathReferences,
  spacedReferences,
} from './path-references.ts';

const KEPT_MS = 3_000;
const MOST_KEPT = 500;
/** Places that one line is asked about. */
const MOST_LOOKS = 8;
const MOST_FOUND = 50;

class PlaceLink extends TerminalLink {
  readonly session: string;
  /** Files that are meant; none: it is in the sandbox, where the editor does not reach. */
  readonly paths: readonly string[];
  readonly reference: PathReference;

  constructor(session: string, paths: readonly string[], reference: PathReference) {
    super(
      reference.start,
      reference.length,
      paths.length === 0 ? 'In the sandbox, outside of /workspace' : 'Open',
    );
    this.session = session;
    this.paths = paths;
    this.reference = reference;
  }
}

/**
 * Paths in our terminals lead to the session's files. An absolute path that is none of them gets a link of ours too, because VS Code's own would
 * open this machine's file of that name.
 */
export class PathLinks implements TerminalLinkProvider<PlaceLink> {
  readonly #connection: Connection;
  /** The session of one of our terminals; undefined for others. */
  readonly #sessionOf: (terminal: Terminal) => Promise<string | undefined>;
  readonly #kept = new Map<string, { readonly paths: Promise<string[]>; readonly until: number }>();

  constructor(connection: Connection, sessionOf: (terminal: Terminal) => Promise<string | undefined>) {
    this.#connection = connection;
    this.#sessionOf = sessionOf;
  }

  async provideTerminalLinks(
    { line, terminal }: TerminalLinkContext,
    token: CancellationToken,
  ): Promise<PlaceLink[]> {
    if (this.#connection.peer === undefined) return [];
    const session = await this.#sessionOf(terminal);
    if (session === undefined) return [];
    const spaced = await this.#existing(session, spacedReferences(line).slice(0, MOST_LOOKS));
    const references = pathReferences(line)
      .filter((one) => !spaced.some(({ reference }) => overlap(one, reference)))
      .slice(0, MOST_LOOKS);
    const links = await Promise.all(
      references.map(async (reference) => {
        const paths = await this.#look(session, reference.path);
        if (paths.length > 0) return new PlaceLink(session, paths, reference);
        return reference.path.startsWith('/') ? new PlaceLink(session, [], reference) : null;
      }),
    );
    return token.isCancellationRequested ? [] : [...spaced, ...links.filter((link) => link !== null)];
  }

  async #existing(session: string, references: readonly PathReference[]): Promise<PlaceLink[]> {
    const links = references.map(async (reference) => {
      const paths = await this.#look(session, reference.path);
      return paths.length === 0 ? [] : [new PlaceLink(session, paths, reference)];
    });
    return (await Promise.all(links)).flat();
  }

  async handleTerminalLink({ session, paths, reference }: PlaceLink): Promise<void> {
    if (paths.length === 0) {
      void window.showInformationMessage(
        `${sanitize(reference.path)} is in the sandbox, outside of /workspace: look at it with cat there.`,
      );
      return;
    }
    const path =
      paths.length === 1
        ? paths[0]
        : await window
            .showQuickPick(
              paths.map((one) => ({ label: sanitize(one), path: one })),
              { title: 'Open', placeHolder: 'Several files are called so' },
            )
            .then((picked) => picked?.path);
    if (path !== undefined) await open(workspaceUri(session, path), reference);
  }

  /** Files that a path may mean, remembered for a moment: a pointer that moves asks for the same line again and again. */
  #look(session: string, path: string): Promise<string[]> {
    const key = `${session} ${path}`;
    const now = Date.now();
    const kept = this.#kept.get(key);
    if (kept !== undefined && kept.until > now) return kept.paths;
    if (this.#kept.size >= MOST_KEPT) this.#kept.clear();
    const paths = this.#find(session, path).catch(() => []);
    this.#kept.set(key, { paths, until: now + KEPT_MS });
    return paths;
  }

  async #find(session: string, path: string): Promise<string[]> {
    for (const candidate of workspaceCandidates(path)) {
      if (await isThere(workspaceUri(session, candidate))) return [candidate];
    }
    if (path.startsWith('/')) return [];
    // The shell may be in another folder.
    const end = `/${path.replace(/^(?:\.\.?\/)+/, '')}`;
    const { paths } = await this.#connection.call('files/find', {
      session,
      query: end.slice(1),
      limit: MOST_FOUND,
      hidden: true,
      ignoreFiles: false,
    });
    return paths.filter((one) => one.endsWith(end)).slice(0, 10);
  }
}

function overlap(a: PathReference, b: PathReference): boolean {
  return a.start < b.start + b.length && b.start < a.start + a.length;
}

async function isThere(uri: Uri): Promise<boolean> {
  return Promise.resolve(workspace.fs.stat(uri)).then(
    () => true,
    () => false,
  );
}

async function open(uri: Uri, { line, column }: PathReference): Promise<void> {
  const { type } = await workspace.fs.stat(uri);
  if ((type & FileType.Directory) !== 0) {
    await commands.executeCommand('revealInExplorer', uri);
    return;
  }
  const at = new Position(Math.max(0, (line ?? 1) - 1), Math.max(0, (column ?? 1) - 1));
  const document = await workspace.openTextDocument(uri);
  await window.showTextDocument(document, line === null ? {} : { selection: new Range(at, at) });
}
