import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import Docker from 'dockerode';
import { encodedForms } from '../../supervisor/egress/credentials/encodings.ts';
import type { TestHome } from '../setup/test-home.ts';

/** Every form of the secret (plain, base64, URL, hex, …) that these bytes have. */
export function formsIn(bytes: Buffer, secret: string): string[] {
  return encodedForms(Buffer.from(secret))
    .filter((form) => bytes.includes(form))
    .map((form) => form.toString('latin1'));
}

/** Files below the folder that hold a form of the secret. */
export async function filesWithSecret(folder: string, secret: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const found: string[] = [];
  for (const entry of entries) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const bytes = await readFile(path).catch(() => Buffer.alloc(0));
    if (formsIn(bytes, secret).length > 0) found.push(path);
  }
  return found;
}

/** What the engine shows and keeps of a session's containers, whose roots are read-only and which have no logs. */
export async function shownByEngine(home: TestHome, sessionId: string): Promise<Buffer> {
  const docker = new Docker();
  const parts: Buffer[] = [];
  for (const role of ['agent', 'sidecar'] as const) {
    const id = await home.containerId(sessionId, role);
    if (id === null) continue;
    const container = docker.getContainer(id);
    parts.push(Buffer.from(JSON.stringify(await container.inspect())));
    parts.push(Buffer.from(JSON.stringify(await container.changes())));
  }
  return Buffer.concat(parts);
}

/** What a process of the sandbox can read of all others there: environments, arguments, memory of none. */
export const LOOK = `cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; env; cat /proc/net/unix 2>/dev/null; ls -laR /run /tmp 2>/dev/null | head -500`;
