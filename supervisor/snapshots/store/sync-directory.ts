import { open } from 'node:fs/promises';

/** Makes names that were added to or removed from a folder durable. */
export async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
