import { Uri, commands, window } from 'vscode';
import type { Artifact } from '../../protocol/artifacts.ts';
import type { Session } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import { ARTIFACT_SCHEME, artifactIn, locate } from '../files/location.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { deleteKept, openKept, verifyKept } from './artifact-actions.ts';
import type { ArtifactDocuments } from './artifact-documents.ts';
import { chooseArtifact } from './choose-artifact.ts';
import type { ArtifactAction } from './choose-artifact.ts';
import { exportKept } from './export-artifact.ts';
import { keepFiles, keepOfSession } from './keep-artifact.ts';
import { findArtifact } from './kept.ts';
import type { KeptArtifact } from './kept.ts';

export interface ArtifactHost {
  readonly connection: Connection;
  readonly sessions: SessionList;
  readonly documents: ArtifactDocuments;
  /** The session that a command is about. */
  readonly pick: (target: unknown) => Promise<Session | undefined>;
}

const TITLES: Readonly<Record<ArtifactAction, string>> = {
  open: 'Open Artifact',
  export: 'Export Artifact',
  verify: 'Verify Artifact',
  delete: 'Delete Artifact',
};

/**
 * Keeps files of a workspace (`isFile`), or of a session what the person chooses. `more`: the selection of the Explorer; from a program,
 * what is kept. Returns the artifact.
 */
export async function keepFrom(
  { connection, pick }: ArtifactHost,
  target: unknown,
  more: unknown,
  isFile: boolean,
): Promise<Artifact | undefined> {
  if (isFile && target instanceof Uri) {
    const location = locate(target);
    const session = await pick(location.kind === 'nowhere' ? undefined : location.session);
    const several = Array.isArray(more) ? more.filter((one) => one instanceof Uri) : [];
    return session && (await keepFiles(connection, session, several.length > 0 ? several : [target]));
  }
  const session = await pick(target);
  // An entry of the Sessions view comes with the selection.
  return session && (await keepOfSession(connection, session, typeof target === 'string' ? more : undefined));
}

/** Shows what is kept, of all sessions or of one, until the person closes the list or chooses what leads elsewhere. */
export async function listArtifacts(host: ArtifactHost, target: unknown): Promise<void> {
  const session = target === undefined ? undefined : await host.pick(target);
  for (;;) {
    const choice = await chooseArtifact(host.connection, host.sessions, {
      ...{ title: 'Artifacts', actions: true },
      ...(session === undefined ? {} : { of: session.id }),
    });
    if (choice === undefined) return;
    if (choice.action === 'connect') await commands.executeCommand('holdfast.connectHost', choice.host);
    else if (choice.action === 'keep') {
      await keepFrom(host, session?.id, undefined, false);
      return;
    } else {
      await run(host, choice.action, choice.kept);
      if (choice.action !== 'delete') return;
    }
  }
}

/** Acts on the artifact that is named, else on the one of the active document, else on the one that the person chooses. */
export async function actOn(
  host: ArtifactHost,
  action: ArtifactAction,
  target: unknown,
  more?: unknown,
): Promise<unknown> {
  const kept = await find(host, action, target);
  return kept && (await run(host, action, kept, more));
}

/** `more`: from a program, the path, the folder, or `true` for a deletion that needs no question. */
async function run(
  { documents }: ArtifactHost,
  action: ArtifactAction,
  kept: KeptArtifact,
  more?: unknown,
): Promise<unknown> {
  const text = typeof more === 'string' ? more : undefined;
  switch (action) {
    case 'open':
      return openKept(kept, documents, text);
    case 'export':
      return exportKept(kept, text);
    case 'verify':
      return verifyKept(kept, documents);
    case 'delete':
      return deleteKept(kept, more === true);
  }
}

async function find(
  host: ArtifactHost,
  action: ArtifactAction,
  target: unknown,
): Promise<KeptArtifact | undefined> {
  const { connection, sessions } = host;
  if (typeof target === 'string') return findArtifact(connection, target);
  // Another one is opened, but the one that is shown is exported, verified or deleted.
  const active = action === 'open' ? undefined : window.activeTextEditor?.document.uri;
  const uri = target instanceof Uri ? target : active;
  const id = uri?.scheme === ARTIFACT_SCHEME ? artifactIn(uri) : undefined;
  if (uri !== undefined && id !== undefined) return findArtifact(connection, id, connection.at(uri));
  const choice = await chooseArtifact(connection, sessions, { title: TITLES[action] });
  if (choice?.action === 'keep') await keepFrom(host, undefined, undefined, false);
  if (choice?.action === 'connect') await commands.executeCommand('holdfast.connectHost', choice.host);
  return choice !== undefined && 'kept' in choice ? choice.kept : undefined;
}
