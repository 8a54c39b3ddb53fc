import { window, workspace } from 'vscode';
import type { Disposable, ExtensionContext } from 'vscode';
import { homeFromEnvironment } from '../protocol/home.ts';
import { CommandRegistry } from './commands/registry.ts';
import { Connection } from './connection/connection.ts';
import { bundledSupervisor, clientInfo, supervisorProgram } from './connection/program.ts';
import { StatusItem } from './connection/status-item.ts';
import { Disposal } from './disposal.ts';
import { DocumentBases } from './files/document-bases.ts';
import { SCHEME } from './files/location.ts';
import { WorkspaceFiles } from './files/provider.ts';
import { Notices } from './notices.ts';
import { SessionCommands } from './sessions/commands.ts';

/** Puts the extension together and owns all of it. */
export class Holdfast implements Disposable {
  readonly #owned = new Disposal();

  constructor(context: ExtensionContext) {
    const own = this.#owned;
    const log = own.own(window.createOutputChannel('Holdfast', { log: true }));
    const settings = workspace.getConfiguration('holdfast');
    const connection = own.own(
      new Connection({
        home: settings.get<string>('home', '') || homeFromEnvironment(process.env),
        client: clientInfo(),
        program: () =>
          supervisorProgram({
            bundle: bundledSupervisor(context.extensionPath),
            node: workspace.getConfiguration('holdfast').get('node', ''),
            environment: process.env,
          }),
        log,
      }),
    );
    const notices = new Notices(log);
    own.own(new StatusItem(connection));
    const bases = own.own(new DocumentBases(context.workspaceState));
    const files = own.own(new WorkspaceFiles(connection, bases));
    own.own(workspace.registerFileSystemProvider(SCHEME, files, { isCaseSensitive: true }));
    const sessions = new SessionCommands(connection);
    own.own(
      new CommandRegistry(connection, notices, {
        'holdfast.newSession': (profile) => sessions.create(profile),
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
