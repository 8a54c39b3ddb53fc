import { ATTACHMENT_LIMITS } from '../../protocol/attachment-names.ts';
import type { AttachmentRef } from '../../protocol/attachments.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { HomeFile } from '../../webview/home-messages.ts';
import type { HostConnection } from '../connection/host-connection.ts';

interface KeptFile {
  readonly total: number;
  readonly parts: Buffer[];
  received: number;
}

/** Files that a person attached to a first prompt, in memory until there is a session that can have them. At most 32 MiB. */
export class FirstFiles {
  readonly #kept = new Map<string, KeptFile>();

  /** Takes the next part. Returns whether the file is whole. Errors: `file_too_large`, `invalid_params`. */
  receive({
    upload,
    offset,
    total,
    bytes,
  }: {
    upload: string;
    offset: number;
    total: number;
    bytes: Buffer;
  }): boolean {
    if (offset === 0) this.#begin(upload, total);
    const file = this.#kept.get(upload);
    if (file?.received !== offset || file.total !== total || offset + bytes.length > total) {
      this.drop(upload);
      throw new HoldfastError('invalid_params', 'The file was not attached', {
        why: 'it changed while it was read',
        next: 'attach it again',
      });
    }
    file.parts.push(bytes);
    file.received += bytes.length;
    return file.received === total;
  }

  drop(upload: string): void {
    this.#kept.delete(upload);
  }

  /** Drops the files that the page does not know. Returns those that are here, of those that it knows. */
  keepOnly(files: readonly HomeFile[]): string[] {
    const known = new Set(files.map(({ upload }) => upload));
    for (const upload of this.#kept.keys()) if (!known.has(upload)) this.drop(upload);
    return [...this.#kept].filter(([, { received, total }]) => received === total).map(([upload]) => upload);
  }

  /** Errors: `not_found`. */
  requireAll(files: readonly HomeFile[]): void {
    for (const file of files) this.#bytesOf(file);
  }

  /** Uploads files to the session. They stay here until they are dropped: the prompt may have to be sent again. */
  async uploadTo(
    host: HostConnection,
    session: string,
    files: readonly HomeFile[],
  ): Promise<AttachmentRef[]> {
    const refs: AttachmentRef[] = [];
    for (const file of files) {
      const bytes = this.#bytesOf(file);
      for (let offset = 0; ;) {
        const part = bytes.subarray(offset, offset + ATTACHMENT_LIMITS.chunkBytes);
        const params = { session, upload: file.upload, offset, total: bytes.length };
        const { content } = await host.call('attachment/upload', params, { bytes: part });
        offset += part.length;
        if (content === null) continue;
        refs.push({ content: content.sha256, name: file.name });
        break;
      }
    }
    return refs;
  }

  #begin(upload: string, total: number): void {
    this.drop(upload);
    const sum = [...this.#kept.values()].reduce((all, one) => all + one.total, total);
    if (sum > ATTACHMENT_LIMITS.promptBytes || this.#kept.size >= ATTACHMENT_LIMITS.count) {
      throw new HoldfastError('file_too_large', 'The file was not attached', {
        why: `a prompt has at most ${ATTACHMENT_LIMITS.count} files, and ${ATTACHMENT_LIMITS.promptBytes / 2 ** 20} MiB of them`,
        next: 'copy large files into the folder, and name them in the prompt',
      });
    }
    this.#kept.set(upload, { total, parts: [], received: 0 });
  }

  #bytesOf({ upload, name }: HomeFile): Buffer {
    const file = this.#kept.get(upload);
    if (file !== undefined && file.received === file.total) return Buffer.concat(file.parts);
    throw new HoldfastError('not_found', `${name} is gone`, {
      why: 'the window was reloaded',
      next: 'attach it again',
    });
  }
}
