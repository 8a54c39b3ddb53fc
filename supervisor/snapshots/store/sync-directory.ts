import { open } from 'node:fs/promises';

/** Makes the names added to or removed from a directory durable. */
export async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
