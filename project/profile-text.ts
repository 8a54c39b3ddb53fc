import { constants, open, stat, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { ConfigFolderSchema } from '../protocol/agent-config.ts';
import { PROFILE_BYTES } from '../protocol/deploy.ts';
import { HoldfastError } from '../protocol/errors.ts';
import { PROFILE_FILE } from './profile-file.ts';

export const SMALLEST_PROFILE = [
  'name: counter',
  'agent: { protocol: handler, entry: agent.py }',
  'persistence: persistent',
].join('\n');

/** Content of DIRECTORY/holdfast.yaml. Errors: `not_found` (no such folder), `profile_invalid` (no such file, or not a text file). */
export async function readProfileText(directory: string): Promise<string> {
  await requireDirectory(directory);
  return await readText(directory);
}

const SendsHistorySchema = z.object({ workspace: z.object({ seed: z.object({ git: z.literal(true) }) }) });

/** Whether the profile has `workspace.seed.git: true`. */
export async function wantsHistory(text: string): Promise<boolean> {
  return SendsHistorySchema.safeParse(await parsed(text)).success;
}

const SendsConfigurationSchema = z.object({
  agent: z.object({ config: ConfigFolderSchema, preset: z.string().nullable().default(null) }),
});

/** The configuration that the profile names; null for none. */
export async function wantedConfiguration(
  text: string,
): Promise<{ readonly folder: string; readonly preset: string | null } | null> {
  const found = SendsConfigurationSchema.safeParse(await parsed(text));
  return found.success ? { folder: found.data.agent.config, preset: found.data.agent.preset } : null;
}

/** Undefined for what is no YAML, which the supervisor reports. */
async function parsed(text: string): Promise<unknown> {
  const { parse } = await import('yaml');
  try {
    return parse(text, {
      stringKeys: true,
      merge: false,
      maxAliasCount: 100,
      logLevel: 'silent',
    }) as unknown;
  } catch {
    return undefined;
  }
}

async function requireDirectory(directory: string): Promise<void> {
  const found = await stat(directory).catch((error: unknown) => {
    throw new HoldfastError('not_found', `The folder ${directory} cannot be deployed`, {
      why: error instanceof Error ? error.message : undefined,
      next: `name the folder that contains ${PROFILE_FILE}`,
      cause: error,
    });
  });
  if (!found.isDirectory()) {
    throw new HoldfastError('not_found', `${directory} cannot be deployed`, {
      why: 'it is not a folder',
      next: `name the folder that contains ${PROFILE_FILE}`,
    });
  }
}

async function readText(directory: string): Promise<string> {
  const path = join(directory, PROFILE_FILE);
  // O_NONBLOCK: opening a FIFO must not block the supervisor.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(async (error: unknown) => {
    throw await cannotOpen(directory, error);
  });
  try {
    return await readChecked(file, path);
  } finally {
    await file.close();
  }
}

async function cannotOpen(directory: string, error: unknown): Promise<HoldfastError> {
  const missing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
  if (!missing) {
    return new HoldfastError('profile_invalid', `${join(directory, PROFILE_FILE)} cannot be read`, {
      why: error instanceof Error ? error.message : String(error),
      cause: error,
    });
  }
  const other = await stat(join(directory, 'holdfast.yml')).catch(() => undefined);
  return new HoldfastError('profile_invalid', `${directory} cannot be deployed`, {
    why: `it has no ${PROFILE_FILE}`,
    next:
      other === undefined
        ? `run \`holdfast init\` in that folder, or write one, for example:\n${SMALLEST_PROFILE.replace(/^/gm, '  ')}`
        : `rename holdfast.yml to ${PROFILE_FILE}`,
    cause: error,
  });
}

async function readChecked(file: FileHandle, path: string): Promise<string> {
  const status = await file.stat();
  if (!status.isFile())
    throw new HoldfastError('profile_invalid', `${path} cannot be read`, { why: 'it is not a regular file' });
  if (status.size > PROFILE_BYTES) {
    throw new HoldfastError('profile_invalid', `${path} cannot be read`, {
      why: `it has ${status.size} bytes, and the maximum is ${PROFILE_BYTES}`,
    });
  }
  const bytes = Buffer.alloc(PROFILE_BYTES + 1);
  let length = 0;
  for (;;) {
    const { bytesRead } = await file.read(bytes, length, bytes.length - length, length);
    length += bytesRead;
    if (bytesRead === 0 || length === bytes.length) break;
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(0, length));
  } catch (error) {
    throw new HoldfastError('profile_invalid', `${path} cannot be read`, {
      why: 'it is not UTF-8 text',
      next: 'save it as UTF-8',
      cause: error,
    });
  }
}
