import { Uri, commands, env, window, workspace } from 'vscode';
import type { OpenDialogOptions } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { withProgress } from '../base/progress.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { baseName, locate } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { pickSession } from '../sessions/pick-session.ts';
import { exportTree } from './export-tree.ts';
import { importTree } from './import-tree.ts';
import { exportSource, importTarget } from './session-tree.ts';
import type { ExistingFileDecision, TransferOptions, TransferReport } from './transfer.ts';
import { formatLeftOut, formatReport } from './format.ts';

const OVERWRITE = 'Overwrite All';
const SKIP = 'Skip Existing';
const SHOW = 'Show Skipped Files';
const REVEAL = 'Show Folder';
const FILES = 'Files…';
const FOLDER = 'Folder…';

interface Place {
  readonly session: string;
  readonly path: string;
}

/**
 * The commands that copy files between a workspace and this machine. They keep execute bits and links, which VS Code
 * drops when it copies between file systems.
 */
export class TransferCommands {
  readonly #connection: Connection;
  readonly #sessions: SessionList;

  constructor(connection: Connection, sessions: SessionList) {
    this.#connection = connection;
    this.#sessions = sessions;
  }

  get handlers() {
    return {
      'holdfast.importFiles': (target, _selected, from, existing) => this.#import(target, from, existing),
      'holdfast.exportFiles': (target, selected, to, existing) =>
        this.#export(target, selected, to, existing),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /** `from` and `existing` come from programs; a person is asked for them. */
  async #import(target: unknown, from: unknown, existing: unknown): Promise<TransferReport | undefined> {
    const place = await this.#place(target, 'Import Into Workspace');
    if (place === undefined) return undefined;
    const { session } = place;
    const stat = await this.#connection.call('files/stat', place);
    const folder =
      stat.type === 'directory' ? place.path : place.path.slice(0, -baseName(place.path).length - 1);
    const locals = isStrings(from) ? from : await pickLocals(folder);
    if (locals === undefined) return undefined;
    const report = await copyFiles(`Importing into ${sanitize(folder)}`, existing, (options) =>
      importTree(locals, importTarget(this.#connection, session), folder, options),
    );
    if (typeof existing !== 'string')
      void showReport(`Imported ${formatReport(report)} into ${sanitize(folder)}.`, report);
    return report;
  }

  async #export(
    target: unknown,
    selected: unknown,
    to: unknown,
    existing: unknown,
  ): Promise<TransferReport | undefined> {
    const place = await this.#place(target, 'Export From Workspace');
    if (place === undefined) return undefined;
    const { session } = place;
    const uris = Array.isArray(selected) ? selected.filter((uri) => uri instanceof Uri) : [];
    const paths = uris.flatMap((uri) => pathIn(session, uri) ?? []);
    if (paths.length < uris.length) {
      throw new HoldfastError('invalid_params', 'Nothing was exported', {
        why: 'the selection has entries of more than one session',
        next: 'export the entries of each session on their own',
      });
    }
    const folder = typeof to === 'string' ? to : await pickFolder();
    if (folder === undefined) return undefined;
    const sources = paths.length > 0 ? paths : [place.path];
    const report = await copyFiles(`Exporting to ${sanitize(folder)}`, existing, (options) =>
      exportTree(exportSource(this.#connection, session), sources, folder, options),
    );
    if (typeof existing !== 'string')
      void showReport(`Exported ${formatReport(report)} to ${sanitize(folder)}.`, report, folder);
    return report;
  }

  /** `target`: an entry of the Explorer; else a session, whose whole workspace is meant. */
  async #place(target: unknown, title: string): Promise<Place | undefined> {
    if (target instanceof Uri) {
      const location = locate(target);
      if (location.kind === 'workspace') return { session: location.session, path: location.path };
      if (location.kind === 'root') return { session: location.session, path: WORKSPACE };
    }
    const session = await pickSession(this.#sessions, target, { title, here: true });
    return session === undefined ? undefined : { session: session.id, path: WORKSPACE };
  }
}

function pathIn(session: string, uri: Uri): string | undefined {
  const location = locate(uri);
  if (location.kind === 'nowhere' || location.session !== session) return undefined;
  return location.kind === 'root' ? WORKSPACE : location.path;
}

async function pickLocals(folder: string): Promise<string[] | undefined> {
  // Most file dialogs select files or folders, but not both.
  const kind = await window.showQuickPick([FILES, FOLDER], { title: `Import into ${sanitize(folder)}` });
  if (kind === undefined) return undefined;
  const isFolder = kind === FOLDER;
  const picked = await window.showOpenDialog({
    ...LOCAL,
    canSelectFiles: !isFolder,
    canSelectFolders: isFolder,
    canSelectMany: true,
    openLabel: 'Import',
  });
  return picked?.map(localPath);
}

async function pickFolder(): Promise<string | undefined> {
  const picked = await window.showOpenDialog({
    ...LOCAL,
    canSelectFiles: false,
    canSelectFolders: true,
    openLabel: 'Export Here',
  });
  const [folder] = picked ?? [];
  return folder === undefined ? undefined : localPath(folder);
}

/** Makes the dialog start on this machine, although the window's folder is a session's. */
const LOCAL: OpenDialogOptions = { defaultUri: Uri.file(process.env['HOME'] ?? '/') };

function localPath(uri: Uri): string {
  if (uri.scheme === 'file') return uri.fsPath;
  throw new HoldfastError('not_supported', 'Nothing was copied', {
    why: 'the chosen folder is not on the machine where Holdfast runs',
    next: 'choose a folder on that machine',
  });
}

function copyFiles(
  title: string,
  existing: unknown,
  work: (options: TransferOptions) => Promise<TransferReport>,
): Promise<TransferReport> {
  let shownAt = 0;
  return withProgress(
    title,
    (report, signal) =>
      work({
        signal,
        onExisting: (path) => (isAnswer(existing) ? Promise.resolve(existing) : askExisting(path)),
        onProgress: (done, path) => {
          const now = Date.now();
          if (now - shownAt < PROGRESS_MS) return;
          shownAt = now;
          report(`${formatReport(done)}: ${sanitize(baseName(path), 60)}`);
        },
      }),
    'The copy was cancelled',
  );
}

const PROGRESS_MS = 200;

async function askExisting(path: string): Promise<ExistingFileDecision> {
  const choice = await window.showWarningMessage(
    `${sanitize(baseName(path))} already exists.`,
    { modal: true, detail: 'Your choice applies to all files that already exist.' },
    OVERWRITE,
    SKIP,
  );
  if (choice === OVERWRITE) return 'overwrite';
  if (choice === SKIP) return 'skip';
  throw new HoldfastError('cancelled', 'The copy was cancelled');
}

async function showReport(message: string, report: TransferReport, folder?: string): Promise<void> {
  const canReveal = folder !== undefined && env.remoteName === undefined;
  const choice = await window.showInformationMessage(
    message,
    ...(report.leftOutCount > 0 ? [SHOW] : []),
    ...(canReveal ? [REVEAL] : []),
  );
  if (choice === SHOW) {
    await window.showTextDocument(await workspace.openTextDocument({ content: formatLeftOut(report) }));
  } else if (choice === REVEAL && folder !== undefined) {
    await commands.executeCommand('revealFileInOS', Uri.file(folder));
  }
}

function isAnswer(value: unknown): value is ExistingFileDecision {
  return value === 'overwrite' || value === 'skip';
}

function isStrings(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}
