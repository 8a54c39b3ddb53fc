import type Docker from 'dockerode';
import { extract } from 'tar-stream';

/** Reads one file of a trusted image. */
export async function imageFile(
  docker: Docker,
  image: string,
  path: string,
  labels: Readonly<Record<string, string>> = {},
): Promise<Buffer> {
  const container = await docker.createContainer({ Image: image, Labels: { ...labels } });
  try {
    const archive = await container.getArchive({ path });
    const unpacked = archive.pipe(extract());
    for await (const entry of unpacked) {
      const parts: Buffer[] = [];
      for await (const part of entry) parts.push(part as Buffer);
      return Buffer.concat(parts);
    }
    throw new Error(`${path} is not in ${image}`);
  } finally {
    await container.remove({ force: true });
  }
}
