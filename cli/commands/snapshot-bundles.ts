import { randomBytes } from 'node:crypto';
import { type FileHandle, link, open, rm, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Command } from 'commander';
import { BUNDLE_CHUNK_BYTES, KeyIdSchema } from '../../protocol/bundles.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { SnapshotIdSchema } from '../../protocol/ids.ts';
import type { Result } from '../../protocol/methods.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { newOpId } from '../op-id.ts';
import { WAIT_OPTION, waitForFiles } from '../hydration.ts';
import type { Registry } from '../registry.ts';
import { formatSize } from '../render/quantity.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';

export function registerSnapshotBundles(registry: Registry, group: Command): void {
  registerExport(registry, group);
  registerImport(registry, group);
}

function registerExport(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'export <snapshot> <file>',
    description:
      'save a session, as it is or as it was at a snapshot, in one signed file: its files, history, memory and review, no secrets',
    operands: ['session', 'none'],
    examples: ['holdfast snapshot export default session.tar.zst'],
  });
  registry.setAction(command, async (context, _options, what: string, file: string) => {
    const path = resolve(context.io.cwd, file);
    await requireAbsent(path, file);
    const params = SnapshotIdSchema.safeParse(what).success
      ? { snapshot: what }
      : { session: what, opId: newOpId() };
    const { bundle, snapshot, keyId } = await context.call('bundle/export', params, {
      stage: 'Scanning the workspace',
    });
    const bytes = await writeNewFile(path, file, (handle) => download(context, bundle, handle));
    const { id: snapshotId, sessionId } = snapshot;
    if (context.json) {
      await context.printJson({ file: path, bytes, sessionId, snapshotId, keyId });
      return undefined;
    }
    await context.print(`${context.style.bold(sanitizeLine(file))}: ${formatSize(bytes)}, ${snapshotId}`);
    await context.printHint(`Signed with the key ${keyId}`);
    return undefined;
  });
}

interface ImportOptions {
  name?: string;
  key?: string;
  wait?: boolean;
}

function registerImport(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'import <profile> <file>',
      description:
        'create a session from a file that `snapshot export` saved; its signature is checked first',
      operands: ['profile', 'none'],
      examples: ['holdfast snapshot import reviewer session.tar.zst --name from-the-server'],
    })
    .option('--name <name>', 'a new name for the session')
    .option('--key <id>', 'the key of another home that signed it, as `holdfast manifest key` shows it there')
    .option(...WAIT_OPTION);
  registry.setAction(command, async (context, options: ImportOptions, profile: string, file: string) => {
    const { name, key, wait } = options;
    if (key !== undefined && !KeyIdSchema.safeParse(key).success)
      throw new UsageError('--key takes the id of a key: 64 hexadecimal digits');
    const params = {
      profile,
      ...(name === undefined ? {} : { name }),
      ...(key === undefined ? {} : { key }),
    };
    const handle = await openFile(resolve(context.io.cwd, file), file);
    let result: Result<'bundle/commit'>;
    try {
      result = await upload(context, params, handle);
    } finally {
      await handle.close();
    }
    const { session, snapshot, signedBy, events } = result;
    if (wait === true) await waitForFiles(context, session);
    if (context.json) {
      const { id: sessionId, name: given } = session;
      await context.printJson({ sessionId, name: given, snapshotId: snapshot.id, signedBy, events });
      return undefined;
    }
    await context.print(
      `${context.style.bold(sanitizeLine(session.name))} (${session.id}): ${pluralize(snapshot.files, 'file')}, ${pluralize(events, 'event')}`,
    );
    if (!signedBy.own) await context.printHint(`Signed by the home ${signedBy.home}`);
    await context.printHint(
      `Go on with it: ${context.command(`prompt ${quoteForShell(`${session.profile}/${session.name}`)}`)} '…'`,
    );
    return undefined;
  });
}

/** Reads an export to its end. Returns the bytes of the file. */
async function download(context: Context, bundle: string, file: FileHandle): Promise<number> {
  const client = context.client();
  context.progress.begin('Exporting');
  try {
    for (let at = 0; ;) {
      const { result, bytes, release } = await client.callWithBytes(
        'bundle/read',
        { bundle },
        { signal: context.interrupted },
      );
      await writeAll(file, bytes, at);
      at += bytes.length;
      release();
      context.progress.update({ stage: 'Exporting', done: at, of: null, unit: 'bytes' });
      if (result.end) return at;
    }
  } finally {
    context.progress.end();
  }
}

/** Sends a file and makes a session of it. */
async function upload(
  context: Context,
  params: { profile: string; name?: string; key?: string },
  file: FileHandle,
): Promise<Result<'bundle/commit'>> {
  const client = context.client();
  const signal = context.interrupted;
  const { bundle } = await context.call('bundle/import', params);
  const { size } = await file.stat();
  context.progress.begin('Importing');
  try {
    const buffer = Buffer.alloc(BUNDLE_CHUNK_BYTES);
    for (let at = 0; ;) {
      const { bytesRead } = await file.read(buffer, 0, buffer.length, at);
      if (bytesRead === 0) break;
      await client.call(
        'bundle/append',
        { bundle },
        { signal, bytes: Buffer.from(buffer.subarray(0, bytesRead)) },
      );
      at += bytesRead;
      context.progress.update({ stage: 'Importing', done: at, of: size, unit: 'bytes' });
    }
    return await client.call('bundle/commit', { bundle, opId: newOpId() }, { signal });
  } catch (error) {
    // The end of the connection aborts it as well.
    await client.call('bundle/abort', { bundle }).catch(() => undefined);
    throw error;
  } finally {
    context.progress.end();
  }
}

/** The file gets its name once it is complete and durable, and never replaces another. */
async function writeNewFile(
  path: string,
  shown: string,
  write: (file: FileHandle) => Promise<number>,
): Promise<number> {
  const partial = `${path}.${randomBytes(4).toString('hex')}.part`;
  const file = await open(partial, 'wx', 0o600).catch((error: unknown) => {
    throw new HoldfastError('permission_denied', `${sanitizeLine(shown)} could not be written`, {
      why: `no file can be created in ${sanitizeLine(dirname(path))}`,
      cause: error,
    });
  });
  try {
    try {
      const bytes = await write(file);
      await file.datasync();
      await link(partial, path).catch((error: unknown) => {
        if (codeOf(error) === 'EEXIST') throw existsAlready(shown);
        throw error;
      });
      return bytes;
    } finally {
      await file.close();
    }
  } finally {
    await rm(partial, { force: true });
  }
}

async function writeAll(file: FileHandle, bytes: Uint8Array, at: number): Promise<void> {
  for (let written = 0; written < bytes.length;)
    written += (await file.write(bytes, written, bytes.length - written, at + written)).bytesWritten;
}

async function openFile(path: string, shown: string): Promise<FileHandle> {
  const found = await stat(path).catch(() => null);
  if (found?.isFile() !== true) throw new UsageError(`there is no file ${sanitizeLine(shown)}`);
  return await open(path, 'r');
}

async function requireAbsent(path: string, shown: string): Promise<void> {
  if ((await stat(path).catch(() => null)) !== null) throw existsAlready(shown);
}

function existsAlready(shown: string): UsageError {
  return new UsageError(`${sanitizeLine(shown)} exists already`);
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}
