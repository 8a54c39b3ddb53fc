import { randomBytes, randomUUID } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { Uri, window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import { BUNDLE_CHUNK_BYTES, KeyIdSchema } from '../../protocol/bundles.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Session, SessionNameSchema } from '../../protocol/entities.ts';
import { ProfileNameSchema } from '../../protocol/profile.ts';
import { formatBytes } from '../base/format.ts';
import { type Report, withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import { validationMessage } from '../base/validation-message.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { onHost } from '../connection/host-status.ts';
import { sessionTitle } from './listing.ts';

const FILTERS = { 'Holdfast sessions': ['zst'] };
const IMPORT = 'Import';

/**
 * Saves a session in one signed file. `given`: the path of the file, from a program; it must not exist. Returns the path; undefined where the
 * person cancels.
 */
export async function exportSession(
  connection: Connection,
  session: Session,
  given: unknown,
): Promise<string | undefined> {
  const title = sanitize(sessionTitle(session));
  const path = typeof given === 'string' ? given : await askWhere(session, title);
  if (path === undefined) return undefined;
  // It gets its name once it is complete.
  const partial = `${path}.${randomBytes(4).toString('hex')}.part`;
  const file = await openOrExplain(partial, 'wx');
  try {
    await withProgress(`Exporting ${title}`, async (report, signal) => {
      const host = connection.of(session.id);
      const { bundle } = await host.call(
        'bundle/export',
        { session: session.id, opId: randomUUID() },
        { signal },
      );
      try {
        await download(host, bundle, file, report, signal);
      } finally {
        await host.call('bundle/abort', { bundle }).catch(() => undefined);
      }
    });
    await file.datasync();
    await file.close();
    await rename(partial, path);
  } catch (error) {
    await file.close().catch(() => undefined);
    await rm(partial, { force: true });
    throw error;
  }
  void window.showInformationMessage(`${title} was saved without secrets in ${sanitize(path, 300)}.`);
  return path;
}

/**
 * Makes a session of a file that an export saved. `given`: path and profile, from a program, which gives the name as well if it is
 * another one, and the key if another home signed it; a person is asked for all of them. Undefined where the person cancels.
 */
export async function importSession(
  connection: Connection,
  given: { readonly path: unknown; readonly profile: unknown; readonly name: unknown; readonly key: unknown },
): Promise<Session | undefined> {
  const host = connection.own;
  const title = onHost('Import Session', host.name, connection.known.length);
  const path = typeof given.path === 'string' ? given.path : await askWhich(title);
  if (path === undefined) return undefined;
  const isGiven = typeof given.profile === 'string';
  const profile = ProfileNameSchema.safeParse(isGiven ? given.profile : await askProfile(host, title)).data;
  if (profile === undefined) return undefined;
  const file = await openOrExplain(path, 'r');
  try {
    const session = await importWith(host, file, title, {
      profile,
      key: KeyIdSchema.safeParse(given.key).data,
      name: SessionNameSchema.safeParse(given.name).data,
      asks: !isGiven,
    });
    if (!connection.owns(host, session.id))
      throw new HoldfastError(
        'permission_denied',
        `${host.name} says that the import is a session of another host`,
      );
    return session;
  } finally {
    await file.close();
  }
}

interface ImportChoices {
  readonly profile: string;
  readonly key: string | undefined;
  readonly name: string | undefined;
  /** A person is there, who can be asked. */
  readonly asks: boolean;
}

/** Asks for what the file needs, and tries again with it: the key that signed it, a name that is free. */
async function importWith(
  host: HostConnection,
  file: FileHandle,
  title: string,
  choices: ImportChoices,
): Promise<Session> {
  try {
    return await withProgress(title, (report, signal) => upload(host, choices, file, report, signal));
  } catch (error) {
    if (!choices.asks) throw error;
    const key = choices.key === undefined ? await confirmKey(error) : undefined;
    const name = await askName(title, error);
    if (key === undefined && name === undefined) throw error;
    const next = { ...choices, key: key ?? choices.key, name: name ?? choices.name };
    return await importWith(host, file, title, next);
  }
}

/** Another name, where the profile has a session of this one. */
async function askName(title: string, error: unknown): Promise<string | undefined> {
  if (!(error instanceof HoldfastError) || error.code !== 'already_exists') return undefined;
  const name = await window.showInputBox({
    title,
    prompt: 'The profile has a session of this name. Choose another one',
    ignoreFocusOut: true,
    validateInput: (text) => validationMessage(SessionNameSchema, text, 'a name'),
  });
  if (name === undefined) throw new HoldfastError('cancelled', 'Nothing was imported', { cause: error });
  return name;
}

async function download(
  host: HostConnection,
  bundle: string,
  file: FileHandle,
  report: Report,
  signal: AbortSignal,
): Promise<void> {
  for (let done = 0; ;) {
    const { result, bytes, release } = await host.callWithBytes('bundle/read', { bundle }, { signal });
    for (let at = 0; at < bytes.length;) at += (await file.write(bytes, at, bytes.length - at)).bytesWritten;
    done += bytes.length;
    release();
    report(formatBytes(done));
    if (result.end) return;
  }
}

async function upload(
  host: HostConnection,
  { profile, key, name }: ImportChoices,
  file: FileHandle,
  report: Report,
  signal: AbortSignal,
): Promise<Session> {
  const { size } = await file.stat();
  const { bundle } = await host.call(
    'bundle/import',
    { profile, ...(key === undefined ? {} : { key }), ...(name === undefined ? {} : { name }) },
    { signal },
  );
  try {
    for (let at = 0; at < size;) {
      const { buffer, bytesRead } = await file.read(
        Buffer.alloc(BUNDLE_CHUNK_BYTES),
        0,
        BUNDLE_CHUNK_BYTES,
        at,
      );
      if (bytesRead === 0) break;
      await host.call('bundle/append', { bundle }, { signal, bytes: buffer.subarray(0, bytesRead) });
      at += bytesRead;
      report(`${formatBytes(at)} of ${formatBytes(size)}`);
    }
    report('checking it');
    return (await host.call('bundle/commit', { bundle, opId: randomUUID() }, { signal })).session;
  } catch (error) {
    // The end of the connection aborts it as well.
    await host.call('bundle/abort', { bundle }).catch(() => undefined);
    throw error;
  }
}

/** The key of another home that signed the file, if the person trusts it. */
async function confirmKey(error: unknown): Promise<string | undefined> {
  if (!(error instanceof HoldfastError) || error.code !== 'confirmation_required') return undefined;
  const key = KeyIdSchema.safeParse(error.details?.['keyId']).data;
  if (key === undefined) return undefined;
  const choice = await window.showWarningMessage(
    'Another machine signed this session.',
    {
      modal: true,
      detail: `${key}\n\nCompare this key with what \`holdfast manifest key\` prints there. The session brings files and a history that its maker chose.`,
    },
    IMPORT,
  );
  if (choice === IMPORT) return key;
  throw new HoldfastError('cancelled', 'Nothing was imported', { cause: error });
}

async function askWhere(session: Session, title: string): Promise<string | undefined> {
  const name = sessionTitle(session)
    .replaceAll(/[^\p{L}\p{N}._-]+/gu, '-')
    .slice(0, 60);
  const uri = await window.showSaveDialog({
    title: `Export ${title}`,
    filters: FILTERS,
    defaultUri: Uri.file(`${name.replace(/^[.-]+/, '') || 'session'}.tar.zst`),
  });
  return uri === undefined ? undefined : localPath(uri);
}

async function askWhich(title: string): Promise<string | undefined> {
  const [uri] = (await window.showOpenDialog({ title, openLabel: IMPORT, filters: FILTERS })) ?? [];
  return uri === undefined ? undefined : localPath(uri);
}

/** Errors: `not_supported` for a file that is not on this machine's disk. */
function localPath(uri: Uri): string {
  if (uri.scheme === 'file') return uri.fsPath;
  throw new HoldfastError('not_supported', 'The file cannot be used', {
    why: 'it is not on a disk of the machine where this extension runs',
    next: 'choose one that is',
  });
}

async function askProfile(host: HostConnection, title: string): Promise<string | undefined> {
  const { profiles } = await host.call('profile/list', {});
  if (profiles.length === 0)
    throw new HoldfastError('not_found', 'No profile is deployed yet', {
      next: 'deploy the profile of the session first',
    });
  const items: QuickPickItem[] = profiles.map(({ name }) => ({ label: sanitize(name) }));
  const picked = await window.showQuickPick(items, {
    title,
    placeHolder: 'Choose the profile of the imported session',
  });
  return picked?.label;
}

async function openOrExplain(path: string, flags: 'r' | 'wx'): Promise<FileHandle> {
  try {
    return await open(path, flags, 0o600);
  } catch (error) {
    throw HoldfastError.from(error, `${sanitize(path, 300)} cannot be ${flags === 'r' ? 'read' : 'written'}`);
  }
}
