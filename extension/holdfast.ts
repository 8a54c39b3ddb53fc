import { join } from 'node:path';
import { MarkdownString, Uri, window, workspace } from 'vscode';
import type { Disposable, ExtensionContext } from 'vscode';
import { homeFromEnvironment } from '../protocol/home.ts';
import { CheckCommands } from './checks/check-commands.ts';
import { CommandRegistry } from './commands/registry.ts';
import { Connection } from './connection/connection.ts';
import { bundledSupervisor, clientInfo, supervisorProgram } from './connection/supervisor-program.ts';
import type { SupervisorProgram } from './connection/supervisor-program.ts';
import { StatusItem } from './connection/status-item.ts';
import { DisposableStore } from './base/disposable-store.ts';
import { SaveConflicts } from './files/save-conflicts.ts';
import { DocumentBases } from './files/document-bases.ts';
import { ConfigurationDecorations } from './files/configuration-decorations.ts';
import { GuardedFiles } from './files/guarded-files.ts';
import { SCHEME, SNAPSHOT_SCHEME } from './files/location.ts';
import { ImportedConfiguration } from './files/imported-configuration.ts';
import { SessionSettings } from './files/session-settings.ts';
import { ChangeTimes, TurnChanges } from './files/turn-changes.ts';
import { WorkspaceFiles } from './files/workspace-files.ts';
import { RememberedSettings } from './files/remembered-settings.ts';
import { SessionFiles } from './files/session-files.ts';
import { WindowGuard } from './files/window-guard.ts';
import { buildImages } from './images/build-images.ts';
import { Notifications } from './commands/notifications.ts';
import { HistoryDocuments } from './history/history-documents.ts';
import { SessionEvents } from './history/session-events.ts';
import { PolicyCommands } from './policy/commands.ts';
import { DenialNotifications } from './policy/denial-notifications.ts';
import { SearchCommands } from './search/commands.ts';
import { SessionCommands } from './sessions/commands.ts';
import { SessionList } from './sessions/session-list.ts';
import { WindowSession } from './sessions/window-session.ts';
import { trackSessionWindow } from './sessions/session-window.ts';
import { SessionsView } from './sessions/sessions-view.ts';
import { UnreadTurns } from './sessions/unread-turns.ts';
import { WindowSessionView } from './sessions/window-session-view.ts';
import { SnapshotCommands } from './snapshots/commands.ts';
import { registerModeDocuments } from './snapshots/mode-documents.ts';
import { SnapshotFiles } from './snapshots/snapshot-files.ts';
import { SessionTerminals } from './terminals/session-terminals.ts';
import { TransferCommands } from './transfer/commands.ts';

/** Puts the extension together and owns all of it. */
export class Holdfast implements Disposable {
  readonly #owned = new DisposableStore();

  constructor(context: ExtensionContext) {
    const own = this.#owned;
    const log = own.add(window.createOutputChannel('Holdfast', { log: true }));
    const settings = workspace.getConfiguration('holdfast');
    const home = settings.get<string>('home', '') || homeFromEnvironment(process.env);
    const program = (): Promise<SupervisorProgram> =>
      supervisorProgram({
        bundle: bundledSupervisor(context.extensionPath),
        node: workspace.getConfiguration('holdfast').get('node', ''),
        environment: process.env,
      });
    const connection = own.add(new Connection({ home, client: clientInfo(), program, log }));
    const notices = new Notifications(log);
    const bases = own.add(new DocumentBases(context.workspaceState));
    const times = new ChangeTimes();
    const ownSettings = own.add(new SessionSettings(connection));
    const sessionFiles = new SessionFiles(connection);
    const conflicts = own.add(new SaveConflicts(connection, sessionFiles, bases));
    const files = own.add(
      new WorkspaceFiles({ connection, files: sessionFiles, bases, conflicts, times, settings: ownSettings }),
    );
    // Before the first file can be read.
    const remembered = new RememberedSettings(context.globalStorageUri);
    const guard = own.add(new WindowGuard(context.globalState, remembered));
    const shown = new GuardedFiles(files, guard, new ImportedConfiguration(files));
    own.add(workspace.registerFileSystemProvider(SCHEME, shown, { isCaseSensitive: true }));
    const snapshotFiles = new GuardedFiles(own.add(new SnapshotFiles(connection)), guard);
    own.add(
      workspace.registerFileSystemProvider(SNAPSHOT_SCHEME, snapshotFiles, {
        isCaseSensitive: true,
        isReadonly: new MarkdownString('A snapshot does not change. Restore it, or fork a session from it.'),
      }),
    );
    own.add(window.registerFileDecorationProvider(new ConfigurationDecorations()));
    own.add(trackSessionWindow());
    const sessions = own.add(new SessionList(connection));
    const here = own.add(new WindowSession(sessions));
    own.add(new StatusItem(connection, here));
    own.add(new WindowSessionView(here));
    own.add(sessions.onDidChange((all) => ownSettings.updateTitles(all)));
    const unread = own.add(new UnreadTurns(connection, sessions, context.globalState));
    const view = own.add(new SessionsView(connection, sessions, unread));
    const events = own.add(new SessionEvents(connection));
    own.add(new DenialNotifications(connection, events, sessions));
    own.add(window.registerFileDecorationProvider(own.add(new TurnChanges(connection, events, times))));
    const search = own.add(new SearchCommands(connection, sessions, context.workspaceState));
    own.add(registerModeDocuments());
    const snapshots = new SnapshotCommands(connection, sessions);
    const policy = new PolicyCommands(connection, sessions);
    const histories = own.add(new HistoryDocuments(events));
    const sessionCommands = new SessionCommands({
      connection,
      sessions,
      view,
      unread,
      histories,
      example: join(context.extensionPath, 'examples/counter'),
    });
    const checks = own.add(new CheckCommands(connection, sessions));
    const nowhere = Uri.joinPath(context.globalStorageUri, 'nowhere', 'workspace').fsPath;
    const terminals = own.add(
      new SessionTerminals({ connection, sessions, home, program, nowhere, state: context.workspaceState }),
    );
    own.add(
      new CommandRegistry(connection, notices, {
        ...sessionCommands.handlers,
        ...terminals.handlers,
        ...checks.handlers,
        ...search.handlers,
        ...policy.handlers,
        ...snapshots.handlers,
        ...conflicts.handlers,
        ...new TransferCommands(connection, sessions).handlers,
        'holdfast.buildImages': () =>
          buildImages({ extensionPath: context.extensionPath, home, program, log }),
        'holdfast.connect': () => {
          connection.retry();
        },
        'holdfast.checkEngine': () => connection.checkEngine(),
        'holdfast.showLog': () => log.show(),
      }),
    );
  }

  dispose(): void {
    this.#owned.dispose();
  }
}
