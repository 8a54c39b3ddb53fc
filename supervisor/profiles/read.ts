import { constants, open, stat, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { findStartProblems } from '../../protocol/profile-validation.ts';
import { ProfileSchema, type Profile, unsupportedFields } from '../../protocol/profile.ts';
import { type ProfileProblem, findProblems, parseYaml } from './problems.ts';
import { PROFILE_FILE } from './profile-file.ts';

const LARGEST_PROFILE = 256 * 1024;

export const SMALLEST_PROFILE = [
  'name: counter',
  'agent: { protocol: handler, entry: agent.py }',
  'persistence: persistent',
].join('\n');

/**
 * Reads and validates DIRECTORY/holdfast.yaml. Errors: `not_found` (no such folder), `profile_invalid` (no file, bad
 * YAML, an unknown key, a wrong value; `details.problems` has line and column of each), `not_supported` (fields that
 * this version does not support).
 */
export async function readProfile(directory: string): Promise<Profile> {
  await requireDirectory(directory);
  const text = await readText(directory);
  return checkProfile(text);
}

/** Like `readProfile`, for the text of the file. */
export function checkProfile(text: string): Profile {
  const document = parseYaml(text);
  if ('problems' in document) throw invalid(document.problems);
  const parsed = ProfileSchema.safeParse(document.value);
  if (!parsed.success) throw invalid(findProblems(document, parsed.error.issues));
  const unstartable = findStartProblems(parsed.data);
  if (unstartable.length > 0) {
    const issues = unstartable.map(({ path, message }) => ({
      code: 'custom' as const,
      path: path.map((key) => (/^\d+$/.test(key) ? Number(key) : key)),
      message,
      input: undefined,
    }));
    throw invalid(findProblems(document, issues));
  }
  const unsupported = unsupportedFields(parsed.data);
  if (unsupported.length > 0) {
    throw new HoldfastError(
      'not_supported',
      `${PROFILE_FILE} uses fields that this version does not support`,
      {
        why: unsupported.map(({ field }) => `\`${field}\``).join(', '),
        next: unsupported.map(({ field, next }) => `${field}: ${next}`).join('; '),
        details: { fields: unsupported.map(({ field }) => field) },
      },
    );
  }
  return parsed.data;
}

function invalid(problems: readonly ProfileProblem[]): HoldfastError {
  const shown = problems.map(({ line, column, message }) => `${PROFILE_FILE}:${line}:${column}: ${message}`);
  const more = problems.length > 5 ? [`and ${problems.length - 5} more`] : [];
  const [first] = problems;
  return new HoldfastError('profile_invalid', 'The profile cannot be used', {
    why: [...shown.slice(0, 5), ...more].join('; '),
    next: 'correct the file and deploy again',
    details: {
      file: PROFILE_FILE,
      ...(first === undefined ? {} : { line: first.line, column: first.column }),
      problems: problems.slice(0, 50).map(({ line, column, message }) => ({ line, column, message })),
    },
  });
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
        ? `write one, for example:\n${SMALLEST_PROFILE.replace(/^/gm, '  ')}`
        : `rename holdfast.yml to ${PROFILE_FILE}`,
    cause: error,
  });
}

async function readChecked(file: FileHandle, path: string): Promise<string> {
  const status = await file.stat();
  if (!status.isFile())
    throw new HoldfastError('profile_invalid', `${path} cannot be read`, { why: 'it is not a regular file' });
  if (status.size > LARGEST_PROFILE) {
    throw new HoldfastError('profile_invalid', `${path} cannot be read`, {
      why: `it has ${status.size} bytes, and the maximum is ${LARGEST_PROFILE}`,
    });
  }
  const bytes = Buffer.alloc(LARGEST_PROFILE + 1);
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
