import { join } from 'node:path';
import { MarkdownString, Uri, window, workspace } from 'vscode';
import type { Disposable, ExtensionContext } from 'vscode';
import { homeFromEnvironment } from '../protocol/home.ts';
import { ArtifactCommands } from './artifacts/artifact-commands.ts';
import { CheckCommands } from './checks/check-commands.ts';
import { CommandRegistry } from './commands/registry.ts';
import { Connection } from './connection/connection.ts';
import { Host } from './connection/host.ts';
import { bundledSupervisor, clientInfo, supervisorProgram } from './connection/supervisor-program.ts';
import type { SupervisorProgram } from './connection/supervisor-program.ts';
import { StatusItem } from './connection/status-item.ts';
import { DisposableStore } from './base/disposable-store.ts';
import { RecentStats } from './files/recent-stats.ts';
import { SaveConflicts } from './files/save-conflicts.ts';
import { CachedSettings } from './files/cached-settings.ts';
import { DocumentBases } from './files/document-bases.ts';
import { ConfigurationDecorations } from './files/configuration-decorations.ts';
import { GuardedFiles } from './files/guarded-files.ts';
import { SCHEME, SNAPSHOT_SCHEME } from './files/location.ts';
import { ImportedConfiguration } from './files/imported-configuration.ts';
import { SessionSettings } from './files/session-settings.ts';
import { ChangeTimes } from './files/change-times.ts';
import { LinkTabs } from './files/link-tabs.ts';
import { WorkspaceFiles } from './files/workspace-files.ts';
import { SessionFiles } from './files/session-files.ts';
import { WindowGuard } from './files/window-guard.ts';
import { personAsker } from './hosts/ask-person.ts';
import { HostCommands } from './hosts/commands.ts';
import { buildImages } from './images/build-images.ts';
import { Notifications } from './commands/notifications.ts';
import { HandoffCommands } from './handoff/handoff-commands.ts';
import { InboxCommands } from './inbox/commands.ts';
import { WaitingNotifications } from './inbox/waiting-notifications.ts';
import { WaitingStatusItem } from './inbox/waiting-status-item.ts';
import { HomePages } from './home/home-pages.ts';
import { HistoryCommands } from './history/commands.ts';
import { HistoryDocuments } from './history/history-documents.ts';
import { SessionEvents } from './history/session-events.ts';
import { ManifestCommands } from './page/manifest-commands.ts';
import { PageAfterResume } from './sessions/page-after-resume.ts';
import { SessionPages } from './page/session-pages.ts';
import { PolicyCommands } from './policy/commands.ts';
import { DenialNotifications } from './policy/denial-notifications.ts';
import { OpenReviews } from './review/open-reviews.ts';
import { ReviewCommands } from './review/review-commands.ts';
import { WhyCommands } from './review/why-commands.ts';
import { WorkspaceMarks } from './review/workspace-marks.ts';
import { ReviewDocuments } from './review/review-documents.ts';
import { SearchCommands } from './search/commands.ts';
import { SessionCommands } from './sessions/commands.ts';
import { SessionList } from './sessions/session-list.ts';
import { WindowSession } from './sessions/window-session.ts';
import { sessionsInWindow, trackSessionWindow } from './sessions/session-window.ts';
import { SessionsView } from './sessions/sessions-view.ts';
import { UnreadTurns } from './sessions/unread-turns.ts';
import { WindowSessionView } from './sessions/window-session-view.ts';
import { SetupCommands } from './setups/commands.ts';
import { SnapshotCommands } from './snapshots/commands.ts';
import { registerModeDocuments } from './snapshots/mode-documents.ts';
import { ResumeCommands } from './snapshots/resume-commands.ts';
import { SnapshotFiles } from './snapshots/snapshot-files.ts';
import { SessionTerminals } from './terminals/session-terminals.ts';
import { TransferCommands } from './transfer/commands.ts';

/** The composition root: creates every object of the extension and disposes of it. */
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
    const connection = own.add(
      new Connection({ home, client: clientInfo(), program, log, ask: personAsker() }),
    );
    const bases = own.add(new DocumentBases(context.workspaceState, context.storageUri));
    const times = new ChangeTimes();
    const sessionSettings = own.add(new SessionSettings(connection));
    const sessionFiles = new SessionFiles(connection);
    const recent = new RecentStats();
    const conflicts = own.add(new SaveConflicts({ connection, files: sessionFiles, bases, recent }));
    const files = own.add(
      new WorkspaceFiles({
        connection,
        files: sessionFiles,
        bases,
        conflicts,
        times,
        settings: sessionSettings,
        recent,
      }),
    );
    // Before the file systems are registered, so that no file is read unguarded.
    const cachedSettings = new CachedSettings(context.globalStorageUri);
    const guard = own.add(new WindowGuard(context.globalState, cachedSettings));
    const guardedFiles = new GuardedFiles(files, guard, connection, new ImportedConfiguration(files));
    own.add(workspace.registerFileSystemProvider(SCHEME, guardedFiles, { isCaseSensitive: true }));
    const snapshotFiles = new GuardedFiles(own.add(new SnapshotFiles(connection)), guard, connection);
    own.add(
      workspace.registerFileSystemProvider(SNAPSHOT_SCHEME, snapshotFiles, {
        isCaseSensitive: true,
        isReadonly: new MarkdownString('A snapshot is read-only. Restore it, or fork a session from it.'),
      }),
    );
    own.add(window.registerFileDecorationProvider(new ConfigurationDecorations()));
    own.add(new LinkTabs(connection.local));
    own.add(trackSessionWindow());
    const host = own.add(new Host(connection));
    const sessions = own.add(new SessionList(connection, host));
    const windowSession = own.add(new WindowSession(connection, sessions));
    own.add(new StatusItem(connection, windowSession));
    own.add(new WindowSessionView(windowSession));
    own.add(sessions.onDidChange((all) => sessionSettings.updateTitles(all)));
    const unread = own.add(new UnreadTurns(connection, sessions, context.globalState));
    const view = own.add(new SessionsView(connection, sessions, unread));
    const events = own.add(new SessionEvents(connection));
    own.add(new DenialNotifications(connection, host, sessions));
    own.add(new WaitingStatusItem(sessions));
    own.add(registerModeDocuments());
    own.add(new ReviewDocuments(connection));
    const documents = own.add(new HistoryDocuments(events, connection));
    const example = join(context.extensionPath, 'examples/counter');
    const emptyFolder = Uri.joinPath(context.globalStorageUri, 'nowhere', 'workspace').fsPath;
    const state = context.workspaceState;
    const reviews = own.add(new OpenReviews({ connection, sessions, events, state }));
    const marks = own.add(new WorkspaceMarks({ connection, events, times, reviews }));
    own.add(window.registerFileDecorationProvider(marks));
    const terminals = own.add(
      new SessionTerminals({ connection, sessions, home, program, emptyFolder, state }),
    );
    const pages = own.add(
      new SessionPages({ connection, sessions, unread, extension: context.extensionUri }),
    );
    const pageAfterResume = new PageAfterResume(context.globalState);
    const homePages = own.add(
      new HomePages({ connection, host, sessions, unread, example, extension: context.extensionUri }),
    );
    const isPageVisible = (session: string): boolean => pages.isVisible(session);
    const isHere = (session: string): boolean => pages.isOpen(session) || sessionsInWindow().has(session);
    own.add(new WaitingNotifications({ connection, sessions, isPageVisible, isHere }));
    own.add(
      new CommandRegistry(connection, new Notifications(log), {
        ...new SessionCommands({ connection, sessions, view, unread, example }).handlers,
        ...new ResumeCommands(connection, sessions, unread, pageAfterResume).handlers,
        ...homePages.handlers,
        ...pages.handlers,
        ...own.add(new ManifestCommands(connection, sessions)).handlers,
        ...new InboxCommands(connection, host, sessions).handlers,
        ...new HistoryCommands(sessions, unread, documents).handlers,
        ...new SnapshotCommands(connection, sessions).handlers,
        ...new ReviewCommands(connection, sessions, reviews, context.globalState).handlers,
        ...own.add(new WhyCommands(connection)).handlers,
        ...new HandoffCommands(connection, sessions, context.globalState).handlers,
        ...own.add(new ArtifactCommands(connection, sessions, guard)).handlers,
        ...terminals.handlers,
        ...own.add(new CheckCommands(connection, sessions, host)).handlers,
        ...own.add(new SearchCommands(connection, sessions, state)).handlers,
        ...new PolicyCommands(connection, sessions).handlers,
        ...own.add(new SetupCommands(connection)).handlers,
        ...conflicts.handlers,
        ...new TransferCommands(connection, sessions).handlers,
        ...new HostCommands({ connection, program, extensionPath: context.extensionPath }).handlers,
        'holdfast.buildImages': () =>
          buildImages({ extensionPath: context.extensionPath, home, program, log }),
        'holdfast.connect': () => {
          connection.retry();
        },
        'holdfast.checkEngine': () => connection.checkEngine(),
        'holdfast.showLog': () => log.show(),
      }),
    );
    void pageAfterResume.open();
  }

  dispose(): void {
    this.#owned.dispose();
  }
}
