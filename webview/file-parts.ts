import { ATTACHMENT_LIMITS, attachmentName } from '../protocol/attachment-names.ts';
import { formatBytes, plain } from './format.ts';

/** Characters for one call: more arguments overflow the stack. */
const AT_ONCE = 32_768;

/** Of a file that a person attaches; the bytes are base64. `upload` is the same for all parts. */
export interface FilePart {
  readonly upload: string;
  readonly offset: number;
  readonly total: number;
  readonly bytes: string;
}

/** Gives a file of the person to `send`, a part at a time, until that has a result. Fails with a sentence. */
export async function readInParts<T>(file: File, send: (part: FilePart) => Promise<T | null>): Promise<T> {
  const name = attachmentName(file.name);
  const { chunkBytes, bytes: most } = ATTACHMENT_LIMITS;
  if (file.size > most)
    throw new Error(
      `${plain(name)} is too large to attach: ${formatBytes(file.size)} of at most ${formatBytes(most)}. Copy it into the workspace.`,
    );
  const upload = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16)).join('');
  const total = file.size;
  for (let offset = 0; ; offset += chunkBytes) {
    const bytes = await base64Of(file.slice(offset, offset + chunkBytes), name);
    const result = await send({ upload, offset, total, bytes });
    if (result !== null) return result;
    if (offset > total)
      throw new Error(`${plain(name)} could not be attached: it changed while it was read.`);
  }
}

async function base64Of(part: Blob, name: string): Promise<string> {
  let bytes: Uint8Array;
  try {
    bytes = new Uint8Array(await part.arrayBuffer());
  } catch {
    // A folder that was dropped, or a file that is gone.
    throw new Error(`${plain(name)} could not be read. Folders cannot be attached.`);
  }
  let text = '';
  for (let at = 0; at < bytes.length; at += AT_ONCE)
    text += String.fromCharCode(...bytes.subarray(at, at + AT_ONCE));
  return btoa(text);
}
