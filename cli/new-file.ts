import { open } from 'node:fs/promises';
import { UsageError } from './failure.ts';
import { sanitizeLine } from './render/text.ts';

/** Writes a file that does not exist yet. Errors: a usage error if it does. */
export async function writeNewFile(path: string, bytes: string | Uint8Array): Promise<void> {
  const file = await open(path, 'wx', 0o644).catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST')
      throw new UsageError(`${sanitizeLine(path)} exists already`);
    throw error;
  });
  try {
    await file.writeFile(bytes);
  } finally {
    await file.close();
  }
}
