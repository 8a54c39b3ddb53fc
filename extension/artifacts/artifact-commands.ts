import { Uri } from 'vscode';
import type { Disposable } from 'vscode';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { SCHEME } from '../files/location.ts';
import type { WindowGuard } from '../files/window-guard.ts';
import { pickSession } from '../sessions/pick-session.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { ArtifactDocuments } from './artifact-documents.ts';
import { actOn, keepFrom, listArtifacts } from './run-command.ts';
import type { ArtifactHost } from './run-command.ts';

/** The commands that keep results of sessions, and those for what was kept. */
export class ArtifactCommands implements Disposable {
  readonly #documents: ArtifactDocuments;
  readonly #host: ArtifactHost;

  constructor(connection: Connection, sessions: SessionList, guard: WindowGuard) {
    this.#documents = new ArtifactDocuments(connection, guard);
    this.#host = {
      ...{ connection, sessions, documents: this.#documents },
      pick: (target) => pickSession(sessions, target, { title: 'Keep as Artifact', here: true }),
    };
  }

  get handlers() {
    const host = this.#host;
    return {
      'holdfast.keepArtifact': (target, more) =>
        keepFrom(host, target, more, target instanceof Uri && target.scheme === SCHEME),
      'holdfast.showArtifacts': (target) => listArtifacts(host, target),
      'holdfast.openArtifact': (target, path) => actOn(host, 'open', target, path),
      'holdfast.exportArtifact': (target, folder) => actOn(host, 'export', target, folder),
      'holdfast.verifyArtifact': (target) => actOn(host, 'verify', target),
      'holdfast.deleteArtifact': (target, confirmed) => actOn(host, 'delete', target, confirmed),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  dispose(): void {
    this.#documents.dispose();
  }
}
