import { createPublicKey } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { open, stat, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { Uri, window } from 'vscode';
import { z } from 'zod';
import type { Session } from '../../protocol/entities.ts';
import { readPublicKey } from '../../protocol/envelope.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { ENVELOPE_CHARACTERS } from '../../protocol/manifest.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { MANIFEST_SCHEME } from '../files/location.ts';
import { manifestText } from './manifest-text.ts';
import { readManifest } from './session-record.ts';

const KEY_BYTES = 4096;

/** What a document of a saved manifest shows: the file, and the file of a public key or the host whose key it is. */
const SavedSchema = z.object({ file: z.string(), key: z.string().optional(), host: z.string().optional() });
type Saved = z.infer<typeof SavedSchema>;

/** The text of a document: a manifest of a session as it is now, or of a saved one. */
export async function readManifestText(
  connection: Connection,
  { authority, query }: Pick<Uri, 'authority' | 'query'>,
): Promise<string> {
  if (authority !== '') {
    const host = connection.of(authority);
    const envelope = await readManifest(connection, authority);
    const { publicKey } = await host.call('manifest/key', {});
    return manifestText(JSON.stringify(envelope), createPublicKey(publicKey), machineName(host.name));
  }
  const { file, key, host = connection.local.name } = SavedSchema.parse(JSON.parse(query));
  const text = await readText(file, ENVELOPE_CHARACTERS);
  if (key !== undefined) return manifestText(text, await readKey(key), sanitize(basename(key), 80));
  const { publicKey } = await connection.host(host).call('manifest/key', {});
  return manifestText(text, createPublicKey(publicKey), machineName(host));
}

/** Saves the signed envelope; returns the file, or undefined where the person stopped. */
export async function saveManifest(
  connection: Connection,
  session: Session,
  given: string | undefined,
): Promise<string | undefined> {
  const name = session.name.replaceAll(/[^\w.-]+/g, '-').replace(/^[.-]+/, '') || 'session';
  const file = given ?? (await chooseNewFile('Save the manifest', `${name}.manifest.json`, 'Save Manifest'));
  if (file === undefined) return undefined;
  const envelope = await readManifest(connection, session.id);
  await writeFile(file, `${JSON.stringify(envelope)}\n`);
  const SAVE_KEY = 'Save Public Key…';
  const message = `The manifest is saved. Who verifies it on another machine needs the public key of this one.`;
  void window.showInformationMessage(message, SAVE_KEY).then(async (choice) => {
    if (choice !== SAVE_KEY) return;
    const target = await chooseNewFile('Save the public key', `${name}.public-key.pem`, 'Save Key');
    if (target === undefined) return;
    const { publicKey } = await connection.of(session.id).call('manifest/key', {});
    await writeFile(target, publicKey);
  });
  return file;
}

/** The document that says whether a saved manifest holds; undefined where the person stopped. */
export async function chooseSavedManifest(
  connection: Connection,
  givenFile: string | undefined,
  givenKey: string | undefined,
): Promise<Uri | undefined> {
  const file = givenFile ?? (await chooseFile('Verify a manifest', 'Verify'));
  if (file === undefined) return undefined;
  const by = givenKey === undefined ? await chooseKey(connection) : { key: givenKey };
  if (by === undefined) return undefined;
  const saved: Saved = { file, ...by };
  return Uri.from({
    scheme: MANIFEST_SCHEME,
    path: `/${sanitize(basename(file), 80)} verified.txt`,
    query: JSON.stringify(saved),
  });
}

async function chooseKey(connection: Connection): Promise<Omit<Saved, 'file'> | undefined> {
  const FILE = { label: 'A Public Key in a File…', description: 'needs no supervisor', host: undefined };
  const items = [
    ...connection.hosts.map(({ name }) => ({
      label: `The Key of ${machineName(name)}`,
      description: '',
      host: name,
    })),
    FILE,
  ];
  const picked = await window.showQuickPick(items, { title: 'Verify Manifest', placeHolder: 'Signed with' });
  if (picked === undefined) return undefined;
  if (picked.host !== undefined) return { host: picked.host };
  const key = await chooseFile('The public key of the machine that signed it', 'Use This Key');
  return key === undefined ? undefined : { key };
}

async function chooseFile(title: string, openLabel: string): Promise<string | undefined> {
  const chosen = await window.showOpenDialog({ title, openLabel, defaultUri: Uri.file(homedir()) });
  return localPath(chosen?.[0]);
}

async function chooseNewFile(title: string, name: string, saveLabel: string): Promise<string | undefined> {
  const defaultUri = Uri.file(join(homedir(), name));
  return localPath(await window.showSaveDialog({ title, saveLabel, defaultUri }));
}

function localPath(uri: Uri | undefined): string | undefined {
  if (uri !== undefined && uri.scheme !== 'file') {
    throw new HoldfastError('invalid_params', 'The file is not on this machine', {
      next: 'choose one of this machine',
    });
  }
  return uri?.fsPath;
}

/** The machine whose key it is, in words. */
export function machineName(host: string): string {
  return host === 'local' ? 'this machine' : sanitize(host, 80);
}

async function readKey(file: string): Promise<KeyObject> {
  const key = readPublicKey(await readText(file, KEY_BYTES));
  if (key !== null) return key;
  throw new HoldfastError('invalid_params', `${sanitize(basename(file))} is no public Ed25519 key in PEM`, {
    next: 'print one with `holdfast manifest key`',
  });
}

/** The text of a regular file, cut one byte after `limit`. */
async function readText(path: string, limit: number): Promise<string> {
  if (!(await stat(path).catch(() => null))?.isFile())
    throw new HoldfastError('not_found', `There is no file ${sanitize(path)}`);
  const file = await open(path, 'r');
  try {
    const buffer = Buffer.alloc(limit + 1);
    for (let at = 0; ;) {
      const { bytesRead } = await file.read(buffer, at, buffer.length - at, at);
      at += bytesRead;
      if (bytesRead === 0 || at === buffer.length) return buffer.toString('utf8', 0, at);
    }
  } finally {
    await file.close();
  }
}
