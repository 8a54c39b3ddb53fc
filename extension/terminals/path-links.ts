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

const CACHE_MS = 3_000;
const MAX_CACHED = 500;
/** How many paths of one line are checked. */
const MAX_PATHS_PER_LINE = 8;
const MAX_FOUND = 50;

class PathLink extends TerminalLink {
  readonly session: string;
  /** The files that the path may mean. Empty for a path outside /workspace, which the editor cannot open. */
  readonly paths: readonly string[];
  readonly reference: PathReference;

  constructor(session: string, paths: readonly string[], reference: PathReference) {
    super(
      reference.start,
      reference.length,
      paths.length === 0 ? 'In the sandbox, outside /workspace' : 'Open',
    );
    this.session = session;
    this.paths = paths;
    this.reference = reference;
  }
}

/**
 * Links paths in a session's terminal to the session's files. Other absolute paths get a link too: VS Code's own link
 * would open the file with that path on this machine.
 */
export class PathLinks implements TerminalLinkProvider<PathLink> {
  readonly #connection: Connection;
  /** The session of a terminal; undefined for terminals that are not ours. */
  readonly #sessionOf: (terminal: Terminal) => Promise<string | undefined>;
  readonly #cache = new Map<string, { readonly paths: Promise<string[]>; readonly until: number }>();

  constructor(connection: Connection, sessionOf: (terminal: Terminal) => Promise<string | undefined>) {
    this.#connection = connection;
    this.#sessionOf = sessionOf;
  }

  async provideTerminalLinks(
    { line, terminal }: TerminalLinkContext,
    token: CancellationToken,
  ): Promise<PathLink[]> {
    if (this.#connection.connected.length === 0) return [];
    const session = await this.#sessionOf(terminal);
    if (session === undefined || this.#connection.of(session).peer === undefined) return [];
    const spaced = await this.#existing(session, spacedReferences(line).slice(0, MAX_PATHS_PER_LINE));
    const references = pathReferences(line)
      .filter((one) => !spaced.some(({ reference }) => overlap(one, reference)))
      .slice(0, MAX_PATHS_PER_LINE);
    const links = await Promise.all(
      references.map(async (reference) => {
        const paths = await this.#findCached(session, reference.path);
        if (paths.length > 0) return new PathLink(session, paths, reference);
        return reference.path.startsWith('/') ? new PathLink(session, [], reference) : null;
      }),
    );
    return token.isCancellationRequested ? [] : [...spaced, ...links.filter((link) => link !== null)];
  }

  async #existing(session: string, references: readonly PathReference[]): Promise<PathLink[]> {
    const links = references.map(async (reference) => {
      const paths = await this.#findCached(session, reference.path);
      return paths.length === 0 ? [] : [new PathLink(session, paths, reference)];
    });
    return (await Promise.all(links)).flat();
  }

  async handleTerminalLink({ session, paths, reference }: PathLink): Promise<void> {
    if (paths.length === 0) {
      void window.showInformationMessage(
        `${sanitize(reference.path)} is in the sandbox, outside /workspace. ` +
          'View it in the terminal, for example with cat.',
      );
      return;
    }
    const path =
      paths.length === 1
        ? paths[0]
        : await window
            .showQuickPick(
              paths.map((one) => ({ label: sanitize(one), path: one })),
              { title: 'Open', placeHolder: 'Several files have this name' },
            )
            .then((picked) => picked?.path);
    if (path !== undefined) await open(workspaceUri(this.#connection, session, path), reference);
  }

  /** `#find` with a short-lived cache: while the pointer moves, VS Code requests the same line again and again. */
  #findCached(session: string, path: string): Promise<string[]> {
    const key = `${session} ${path}`;
    const now = Date.now();
    const cached = this.#cache.get(key);
    if (cached !== undefined && cached.until > now) return cached.paths;
    if (this.#cache.size >= MAX_CACHED) this.#cache.clear();
    const paths = this.#find(session, path).catch(() => []);
    this.#cache.set(key, { paths, until: now + CACHE_MS });
    return paths;
  }

  async #find(session: string, path: string): Promise<string[]> {
    for (const candidate of workspaceCandidates(path)) {
      if (await exists(workspaceUri(this.#connection, session, candidate))) return [candidate];
    }
    if (path.startsWith('/')) return [];
    // The shell may be in another folder, so any file whose path ends with this one may be meant.
    const end = `/${path.replace(/^(?:\.\.?\/)+/, '')}`;
    const { paths } = await this.#connection.call('files/find', {
      session,
      query: end.slice(1),
      limit: MAX_FOUND,
      hidden: true,
      ignoreFiles: false,
    });
    return paths.filter((one) => one.endsWith(end)).slice(0, 10);
  }
}

function overlap(a: PathReference, b: PathReference): boolean {
  return a.start < b.start + b.length && b.start < a.start + a.length;
}

async function exists(uri: Uri): Promise<boolean> {
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
