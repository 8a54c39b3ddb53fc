import { randomUUID } from 'node:crypto';
import type { Uri } from 'vscode';
import { commands, window, workspace } from 'vscode';
import { z } from 'zod';
import { type Artifact, ArtifactKindSchema } from '../../protocol/artifacts.ts';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatBytes, formatCount } from '../base/format.ts';
import { withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { artifactUri, baseName, fileKey, locate } from '../files/location.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { patternOf, patternsIn } from './patterns.ts';

const MAX_NAME = 100;

/** What is kept; a program gives it, and a person is asked. */
const WantedSchema = z.object({
  kind: ArtifactKindSchema.default('files'),
  paths: z.array(z.string().trim().min(1)).default([]),
  name: z.string().optional(),
  unreviewed: z.boolean().optional(),
});
type Wanted = z.infer<typeof WantedSchema>;

/** Keeps results of a session. `given`: as `WantedSchema`, from a program. Undefined where the person stopped. */
export async function keepOfSession(
  connection: Connection,
  session: Session,
  given: unknown,
): Promise<Artifact | undefined> {
  if (given !== undefined) return await create(connection, session, WantedSchema.parse(given));
  const title = `Keep as artifact: ${sanitize(sessionTitle(session), 60)}`;
  const what = await chooseWhat(title);
  if (what === undefined) return undefined;
  const name = await askName(title, sessionTitle(session));
  return name === undefined ? undefined : await keep(connection, session, { ...what, ...name });
}

/** Keeps files and folders of a workspace as they are there, whether they were reviewed or not: the person looks at them. */
export async function keepFiles(
  connection: Connection,
  session: Session,
  uris: readonly Uri[],
): Promise<Artifact | undefined> {
  const paths = uris.map((uri) => {
    const location = locate(uri);
    if (location.kind === 'nowhere' || location.session !== session.id) {
      throw new HoldfastError('invalid_params', 'Nothing was kept', {
        why: 'the selection has entries of more than one session',
        next: 'keep the entries of each session on their own',
      });
    }
    return location.kind === 'root' ? '**' : patternOf(location.path);
  });
  const [first] = uris;
  const title = 'Keep as artifact';
  const name = await askName(title, first === undefined ? '' : sanitize(baseName(first.path)));
  if (name === undefined || !(await saveFirst(uris))) return undefined;
  return await keep(connection, session, { kind: 'files', paths, unreviewed: true, ...name });
}

async function chooseWhat(title: string): Promise<Pick<Wanted, 'kind' | 'paths'> | undefined> {
  const items = [
    {
      label: 'Changes as a Patch',
      detail: 'One file for git apply. With a review: what you accepted',
      what: 'patch' as const,
    },
    {
      label: 'Changed Files',
      detail: 'Every file that was added or changed. With a review: what you accepted',
      what: 'changed' as const,
    },
    {
      label: 'Chosen Files…',
      detail: 'Files, folders and patterns, changed or not, ignored ones too',
      what: 'chosen' as const,
    },
  ];
  const picked = await window.showQuickPick(items, { title, placeHolder: 'What is kept?' });
  if (picked === undefined) return undefined;
  if (picked.what !== 'chosen') return { kind: picked.what === 'patch' ? 'patch' : 'files', paths: [] };
  const typed = await window.showInputBox({
    title,
    prompt: 'Files and folders below /workspace, with commas between them; * and ** match names',
    placeHolder: 'dist, report.md, logs/*.txt',
    validateInput: (text) => (patternsIn(text).length === 0 ? 'Enter a file or a folder.' : undefined),
  });
  return typed === undefined ? undefined : { kind: 'files', paths: patternsIn(typed) };
}

async function askName(title: string, value: string): Promise<Pick<Wanted, 'name'> | undefined> {
  const typed = await window.showInputBox({
    title,
    value: value.slice(0, MAX_NAME),
    prompt: 'What it is called',
    validateInput: (text) =>
      text.trim() === ''
        ? 'Enter a name.'
        : text.trim().length > MAX_NAME
          ? `Enter at most ${MAX_NAME} characters.`
          : undefined,
  });
  return typed === undefined ? undefined : { name: typed.trim() };
}

/** What is kept is what the session has: text that is not saved is not part of it. */
async function saveFirst(uris: readonly Uri[]): Promise<boolean> {
  const chosen = uris.map((uri) => fileKey(uri).replace(/\/$/, ''));
  const unsaved = workspace.textDocuments.filter(({ isDirty, uri }) => {
    const own = fileKey(uri);
    return isDirty && chosen.some((one) => own === one || own.startsWith(`${one}/`));
  });
  if (unsaved.length === 0) return true;
  const SAVE = 'Save and Keep';
  const choice = await window.showWarningMessage(
    `${formatCount(unsaved.length, 'file')} with unsaved text`,
    { modal: true, detail: 'An artifact has what is saved.' },
    SAVE,
  );
  if (choice !== SAVE) return false;
  const saved = await Promise.all(unsaved.map((document) => document.save()));
  return saved.every(Boolean);
}

/** For a person: asks where nothing is accepted in the review, and says what was kept. */
async function keep(connection: Connection, session: Session, wanted: Wanted): Promise<Artifact | undefined> {
  try {
    return await create(connection, session, wanted);
  } catch (error) {
    const isOfReview = error instanceof HoldfastError && error.code === 'invalid_state';
    if (!isOfReview || wanted.unreviewed === true) throw error;
    if (!(await confirmUnreviewed(session, error))) return undefined;
    return await create(connection, session, { ...wanted, unreviewed: true });
  }
}

async function confirmUnreviewed(session: Session, error: HoldfastError): Promise<boolean> {
  const REVIEW = 'Review Changes';
  const KEEP = 'Keep Without Review';
  const choice = await window.showWarningMessage(
    `${sanitize(error.message)}.`,
    { modal: true, detail: 'Review the changes and accept them, or keep the workspace as it is now.' },
    REVIEW,
    KEEP,
  );
  if (choice === REVIEW) void commands.executeCommand('holdfast.reviewChanges', session.id);
  return choice === KEEP;
}

async function create(connection: Connection, session: Session, wanted: Wanted): Promise<Artifact> {
  const { kind, paths, name, unreviewed } = wanted;
  const { artifact, leftOutPaths } = await withProgress(
    `Keeping results of ${sanitize(sessionTitle(session), 60)}`,
    (report, signal) =>
      connection.call(
        'artifact/create',
        {
          ...{ session: session.id, kind, opId: randomUUID() },
          ...(paths.length === 0 ? {} : { paths }),
          ...(name === undefined ? {} : { name }),
          ...(unreviewed === undefined ? {} : { unreviewed }),
        },
        { signal, onProgress: ({ stage }) => report(sanitize(stage)) },
      ),
  );
  showKept(artifact, leftOutPaths, artifactUri(connection.of(session.id), artifact.id, '/'));
  return artifact;
}

/** `uri`: names the host that has it, so that no other one answers for it. */
function showKept(artifact: Artifact, leftOutPaths: readonly string[], uri: Uri): void {
  const OPEN = 'Open';
  const EXPORT = 'Export…';
  const names = leftOutPaths.slice(0, 3).map((path) => sanitize(path, 80));
  const rest = artifact.leftOut - names.length;
  const leftOut =
    artifact.leftOut === 0
      ? ''
      : ` Left out: ${[...names, ...(rest > 0 ? [`${rest} more`] : [])].join(', ')}.`;
  void window
    .showInformationMessage(
      `Kept “${sanitize(artifact.name, 100)}”: ${formatCount(artifact.files, 'file')}, ${formatBytes(artifact.bytes)}.${leftOut}`,
      OPEN,
      EXPORT,
    )
    .then((choice) => {
      if (choice === OPEN) void commands.executeCommand('holdfast.openArtifact', uri);
      if (choice === EXPORT) void commands.executeCommand('holdfast.exportArtifact', uri);
    });
}
