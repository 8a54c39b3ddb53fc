import { ATTACHMENT_LIMITS } from '../../protocol/attachment-names.ts';
import type { Attachment } from '../../protocol/attachments.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { parsePath, WORKSPACE } from '../../protocol/paths.ts';
import { IN_SANDBOX } from '../../sidecar/wire.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Contents } from '../history/contents.ts';
import { retryIfSandboxLost } from '../workspace/sidecar-access.ts';
import type { UseSidecar } from '../workspace/sidecar-process-channel.ts';

/** Writes of one file that an agent may spoil by changing what was written. */
const TRIES = 3;
const CONTROL = /\p{Cc}/u;

type StoredFile = Exclude<Attachment, { kind: 'link' }>;

export interface PromptFilesOptions {
  readonly contents: Pick<Contents, 'read'>;
  readonly useSidecar: (sessionId: string) => UseSidecar;
}

/** Hands the files of prompts to sandboxes. */
export class PromptFiles {
  readonly #options: PromptFilesOptions;

  constructor(options: PromptFilesOptions) {
    this.#options = options;
  }

  /** All bytes of a file. Errors: `not_found` when it was removed, `home_damaged`. */
  read(sessionId: string, { content: { sha256, bytes } }: StoredFile): Buffer {
    const parts: Buffer[] = [];
    for (let offset = 0; offset < bytes;) {
      const { part } = this.#options.contents.read(sessionId, sha256, offset, bytes - offset);
      parts.push(part);
      offset += part.length;
    }
    return Buffer.concat(parts);
  }

  /**
   * Writes files into the directory of their turn, from which the agent reads them. Can be repeated. Errors: `sandbox_lost`,
   * `no_space`, those of `read`.
   */
  async place(sessionId: string, turnId: string, attachments: readonly Attachment[]): Promise<void> {
    for (const one of attachments) {
      if (one.kind === 'link') continue;
      await this.#write(sessionId, turnId, one);
      await failpoint('attachment.after-place');
    }
  }

  async #write(sessionId: string, turnId: string, file: StoredFile): Promise<void> {
    const { name, content } = file;
    const total = content.bytes;
    let tries = 1;
    for (let offset = 0; ;) {
      const limit = Math.min(ATTACHMENT_LIMITS.chunkBytes, total - offset);
      const part =
        limit === 0
          ? Buffer.alloc(0)
          : this.#options.contents.read(sessionId, content.sha256, offset, limit).part;
      const params = { turnId, name, offset, total };
      const stored = await retryIfSandboxLost((isRetry) =>
        this.#options.useSidecar(sessionId)((client) => client.writeAttachment(params, part), isRetry),
      );
      if (stored === total) return;
      if (stored === 0 && ++tries > TRIES) {
        throw new HoldfastError('agent_failed', `The attachment ${name} cannot be handed to the agent`, {
          why: 'a process in the sandbox keeps changing it while it is written',
          next: 'send the prompt again',
        });
      }
      offset = stored;
    }
  }
}

/** Where an agent finds an attachment: the bytes of an absolute path. */
export function pathInSandbox(turnId: string, attachment: Attachment): Buffer {
  if (attachment.kind !== 'link')
    return Buffer.from(`${IN_SANDBOX.run}/attachments/${turnId}/${attachment.name}`);
  const slash = Buffer.from('/');
  return Buffer.concat([
    Buffer.from(WORKSPACE),
    ...parsePath(attachment.path).flatMap((name) => [slash, name]),
  ]);
}

/** The name of an attachment for people and agents. */
export function nameOf(attachment: Attachment): string {
  if (attachment.kind !== 'link') return attachment.name;
  return attachment.path.slice(attachment.path.lastIndexOf('/') + 1);
}

/** The prompt of a program that takes text: what it brings along stands below it, a path on each line. */
export function withPaths(input: Buffer, turnId: string, attachments: readonly Attachment[]): Buffer {
  if (attachments.length === 0) return input;
  const lines = attachments.map((one) => {
    const path = pathInSandbox(turnId, one);
    const text = path.toString('utf8');
    // A line break in a name must not look like another file.
    return CONTROL.test(text) ? Buffer.from(JSON.stringify(text)) : path;
  });
  const list = lines.flatMap((line) => [Buffer.from('\n- '), line]);
  return Buffer.concat([input, Buffer.from('\n\nAttached files:'), ...list, Buffer.from('\n')]);
}
