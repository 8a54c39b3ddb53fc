import { join } from 'node:path';
import { MarkdownString, Uri, window, workspace } from 'vscode';
import type { Disposable, ExtensionContext } from 'vscode';
import { homeFromEnvironment } from '../protocol/home.ts';
import { CheckCommands } from './checks/check-commands.ts';
import { CommandRegistry } from './commands/registry.ts';
import { Connection } from './connection/connection.ts';
import { bundledSupervisor, clientInfo, supervisorProgram } from './connection/program.ts';
import type { SupervisorProgram } from './connection/program.ts';
import { StatusItem } from './connection/status-item.ts';
import { Disposal } from './disposal.ts';
import { Conflicts } from './files/conflicts.ts';
import { DocumentBases } from './files/document-bases.ts';
import { ConfigurationMarks } from './files/configuration-marks.ts';
import { GuardedFiles } from './files/guarded-files.ts';
import { SCHEME, SNAPSHOT_SCHEME } from './files/location.ts';
import { ImportedConfiguration } from './files/imported-configuration.ts';
import { OwnSettings } from './files/own-settings.ts';
import { ChangeTimes, TurnChanges } from './files/turn-changes.ts';
import { WorkspaceFiles } from './files/provider.ts';
import { RememberedSettings } from './files/remembered-settings.ts';
import { SessionFiles } from './files/session-files.ts';
import { WindowGuard } from './files/window-guard.ts';
import { buildImages } from './images/build-images.ts';
import { Notices } from './notices.ts';
import { HistoryDocuments } from './history/history-documents.ts';
import { SessionEvents } from './history/session-events.ts';
import { PolicyCommands } from './policy/commands.ts';
import { Denials } from './policy/denials.ts';
import { SearchCommands } from './search/commands.ts';
import { SessionCommands } from './sessions/commands.ts';
import { KnownSessions } from './sessions/known-sessions.ts';
import { WindowSession } from './sessions/session-here.ts';
import { trackSessionWindow } from './sessions/session-window.ts';
import { SessionsView } from './sessions/sessions-view.ts';
import { Unread } from './sessions/unread.ts';
import { WindowSessionView } from './sessions/window-session-view.ts';
import { SnapshotCommands } from './snapshots/commands.ts';
import { registerModeDocuments } from './snapshots/mode-documents.ts';
import { SnapshotFiles } from './snapshots/snapshot-provider.ts';
import { SessionTerminals } from './terminals/session-terminals.ts';
import { TransferCommands } from './transfer/commands.ts';

/** Puts the extension together and owns all of it. */
export class Holdfast implements Disposable {
  readonly #owned = new Disposal();

  constructor(context: ExtensionContext) {
    const own = this.#owned;
    const log = own.own(window.createOutputChannel('Holdfast', { log: true }));
    const settings = workspace.getConfiguration('holdfast');
    const home = settings.get<string>('home', '') || homeFromEnvironment(process.env);
    const program = (): Promise<SupervisorProgram> =>
      supervisorProgram({
        bundle: bundledSupervisor(context.extensionPath),
        node: workspace.getConfiguration('holdfast').get('node', ''),
        environment: process.env,
      });
    const connection = own.own(new Connection({ home, client: clientInfo(), program, log }));
    const notices = new Notices(log);
    const bases = own.own(new DocumentBases(context.workspaceState));
    const times = new ChangeTimes();
    const ownSettings = own.own(new OwnSettings(connection));
    const sessionFiles = new SessionFiles(connection);
    const conflicts = own.own(new Conflicts(connection, sessionFiles, bases));
    const files = own.own(
      new WorkspaceFiles({ connection, files: sessionFiles, bases, conflicts, times, settings: ownSettings }),
    );
    // Before the first file can be read.
    const remembered = new RememberedSettings(context.globalStorageUri);
    const guard = own.own(new WindowGuard(context.globalState, remembered));
    const shown = new GuardedFiles(files, guard, new ImportedConfiguration(files));
    own.own(workspace.registerFileSystemProvider(SCHEME, shown, { isCaseSensitive: true }));
    const snapshotFiles = new GuardedFiles(own.own(new SnapshotFiles(connection)), guard);
    own.own(
      workspace.registerFileSystemProvider(SNAPSHOT_SCHEME, snapshotFiles, {
        isCaseSensitive: true,
        isReadonly: new MarkdownString('A snapshot does not change. Restore it, or fork a session from it.'),
      }),
    );
    own.own(window.registerFileDecorationProvider(new ConfigurationMarks()));
    own.own(trackSessionWindow());
    const sessions = own.own(new KnownSessions(connection));
    const here = own.own(new WindowSession(sessions));
    own.own(new StatusItem(connection, here));
    own.own(new WindowSessionView(here));
    own.own(sessions.onDidChange((all) => ownSettings.heard(all)));
    const unread = own.own(new Unread(connection, sessions, context.globalState));
    const view = own.own(new SessionsView(connection, sessions, unread));
    const events = own.own(new SessionEvents(connection));
    own.own(new Denials(connection, events, sessions));
    own.own(window.registerFileDecorationProvider(own.own(new TurnChanges(connection, events, times))));
    const search = own.own(new SearchCommands(connection, sessions, context.workspaceState));
    own.own(registerModeDocuments());
    const snapshots = new SnapshotCommands(connection, sessions);
    const policy = new PolicyCommands(connection, sessions);
    const histories = own.own(new HistoryDocuments(events));
    const sessionCommands = new SessionCommands({
      connection,
      sessions,
      view,
      unread,
      histories,
      example: join(context.extensionPath, 'examples/counter'),
    });
    const checks = own.own(new CheckCommands(connection, sessions));
    const nowhere = Uri.joinPath(context.globalStorageUri, 'nowhere', 'workspace').fsPath;
    const terminals = own.own(
      new SessionTerminals({ connection, sessions, home, program, nowhere, state: context.workspaceState }),
    );
    own.own(
      new CommandRegistry(connection, notices, {
        ...sessionCommands.works,
        ...terminals.works,
        ...checks.works,
        ...search.works,
        ...policy.works,
        ...snapshots.works,
        ...conflicts.works,
        ...new TransferCommands(connection, sessions).works,
        'holdfast.buildImages': () =>
          buildImages({ extensionPath: context.extensionPath, home, program, log }),
        'holdfast.connect': () => {
          connection.retry();
        },
        'holdfast.checkEngine': () => connection.lookAgain(),
        'holdfast.showLog': () => log.show(),
      }),
    );
  }

  dispose(): void {
    this.#owned.dispose();
  }
}
