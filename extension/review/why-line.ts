import { Hover, MarkdownString, commands, window } from 'vscode';
import type { CancellationToken, Position, TextDocument, Uri } from 'vscode';
import type { BlameOrigin } from '../../protocol/blame.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { signalOf } from '../base/progress.ts';
import type { Connection } from '../connection/connection.ts';
import { SCHEME, locate, snapshotUri } from '../files/location.ts';
import { originText } from './origin-text.ts';

const COMMAND = 'holdfast.whyThisLine';
const COMPARE = 'Compare This File';
const CONVERSATION = 'Open Conversation';

interface Found {
  readonly session: string;
  readonly path: string;
  readonly origin: BlameOrigin;
}

/** Says what changed a line of a session's file last. */
export class WhyLine {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Nothing about lines that nobody changed, and where it cannot be asked: a hover never fails. */
  async hover(
    document: TextDocument,
    { line }: Position,
    token: CancellationToken,
  ): Promise<Hover | undefined> {
    // Lines of an unsaved document are elsewhere in the file.
    if (document.isDirty) return undefined;
    const found = await this.#find(document, line, token).catch(() => undefined);
    const words = found === undefined ? undefined : originText(found.origin, Date.now());
    if (words === undefined) return undefined;
    const text = new MarkdownString();
    // Only the link is markup: a prompt is text.
    text.appendText(words);
    text.appendMarkdown(`\n\n[More…](command:${COMMAND}?${encodeURIComponent(JSON.stringify([line]))})`);
    text.isTrusted = { enabledCommands: [COMMAND] };
    return new Hover(text);
  }

  /** For the line of the active editor, or the given one of it. Returns the origin. */
  async explain(given: unknown): Promise<BlameOrigin | undefined> {
    const editor = window.activeTextEditor;
    if (editor?.document.uri.scheme !== SCHEME) {
      throw new HoldfastError('not_found', 'There is no line to explain', {
        next: 'open a file of a session, and put the cursor on a line',
      });
    }
    const { document, selection } = editor;
    if (document.isDirty) {
      throw new HoldfastError('conflict', 'The file is not saved', { next: 'save it, then ask again' });
    }
    const line = typeof given === 'number' ? given : selection.active.line;
    const found = await this.#find(document, line);
    if (found === undefined) {
      void window.showInformationMessage('There is nothing on this line.');
      return undefined;
    }
    const { origin } = found;
    const words = originText(origin, Date.now()) ?? 'Nobody has changed this line since the session began.';
    const hasTurn = origin.turns.length > 0;
    const hasBefore = (origin.from?.snapshotId ?? null) !== null;
    void this.#offer(document.uri, found, words, [
      ...(hasBefore ? [COMPARE] : []),
      ...(hasTurn ? [CONVERSATION] : []),
    ]);
    return origin;
  }

  async #offer(uri: Uri, found: Found, words: string, choices: readonly string[]): Promise<void> {
    const { session, path, origin } = found;
    const choice = await window.showInformationMessage(words, ...choices);
    if (choice === CONVERSATION) await commands.executeCommand('holdfast.openSessionPage', session);
    const before = origin.from?.snapshotId ?? null;
    if (choice !== COMPARE || before === null) return;
    const home = this.#connection.of(session);
    const after = origin.to?.snapshotId ?? null;
    await commands.executeCommand(
      'vscode.diff',
      snapshotUri(home, before, path),
      after === null ? uri : snapshotUri(home, after, path),
      `${path.slice(path.lastIndexOf('/') + 1)} (before and after)`,
    );
  }

  /** Undefined for a line that the file has not. */
  async #find(document: TextDocument, line: number, token?: CancellationToken): Promise<Found | undefined> {
    const location = locate(document.uri);
    if (location.kind !== 'workspace') return undefined;
    const { session, path } = location;
    const { signal, dispose } = signalOf(token);
    try {
      const { ranges, origins } = await this.#connection.call(
        'review/blame',
        { session, path, start: line, end: line + 1 },
        { signal },
      );
      const origin = origins[ranges[0]?.origin ?? -1];
      return origin === undefined ? undefined : { session, path, origin };
    } finally {
      dispose();
    }
  }
}
