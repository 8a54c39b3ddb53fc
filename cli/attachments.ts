import { randomBytes } from 'node:crypto';
import { constants, type FileHandle, open } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import { ATTACHMENT_LIMITS } from '../protocol/attachment-names.ts';
import type { Attachment, AttachmentRef } from '../protocol/attachments.ts';
import { HoldfastError } from '../protocol/errors.ts';
import { WORKSPACE } from '../protocol/paths.ts';
import type { Context } from './context.ts';
import { formatSize } from './render/quantity.ts';
import { sanitizeLine } from './render/text.ts';

/** A path that the option names: below /workspace it is the session's, anywhere else a file of the person. */
function isInWorkspace(path: string): boolean {
  return path === WORKSPACE || path.startsWith(`${WORKSPACE}/`);
}

/** For an option that can be given more than once. */
export function collected(path: string, earlier: readonly string[] | undefined): string[] {
  return [...(earlier ?? []), path];
}

/** What a prompt brings along, before there is a session that has it: a link, or a file with its bytes. */
export type LocalAttachment = { readonly link: string } | { readonly name: string; readonly bytes: Buffer };

/** Reads the person's files, 32 MiB in all at most. Errors: `invalid_params`, `file_not_found`, `file_too_large`. */
export async function readAttachments(
  context: Context,
  paths: readonly string[],
): Promise<LocalAttachment[]> {
  if (paths.length > ATTACHMENT_LIMITS.count) {
    throw new HoldfastError('invalid_params', 'A prompt cannot have so many attachments', {
      why: `there are ${paths.length}, and the maximum is ${ATTACHMENT_LIMITS.count}`,
      next: 'put them into the workspace with `holdfast workspace put`, and attach the folder',
    });
  }
  const files: LocalAttachment[] = [];
  let total = 0;
  for (const path of paths) {
    if (isInWorkspace(path)) {
      files.push({ link: path.replace(/(?<=.)\/+$/, '') });
      continue;
    }
    const bytes = await readLocal(resolve(context.io.cwd, path), path);
    total += bytes.length;
    if (total > ATTACHMENT_LIMITS.promptBytes) {
      throw new HoldfastError('file_too_large', 'The attachments are too large', {
        why: `up to ${sanitizeLine(path)} they have ${formatSize(total)}, and the maximum is ${formatSize(ATTACHMENT_LIMITS.promptBytes)}`,
        next: 'put large files into the workspace with `holdfast workspace put`, and attach /workspace/…',
      });
    }
    files.push({ name: basename(path), bytes });
  }
  return files;
}

/** Uploads the files to the session, and names them and the links for a prompt. */
export async function uploadAttachments(
  context: Context,
  session: string,
  files: readonly LocalAttachment[],
): Promise<AttachmentRef[]> {
  if (files.length === 0) return [];
  const refs: AttachmentRef[] = [];
  context.progress.begin('Attaching files');
  try {
    for (const file of files)
      refs.push('link' in file ? { path: file.link } : await upload(context, session, file));
  } finally {
    context.progress.end();
  }
  return refs;
}

/** Both, for a session that exists. */
export async function attach(
  context: Context,
  session: string,
  paths: readonly string[],
): Promise<AttachmentRef[]> {
  return uploadAttachments(context, session, await readAttachments(context, paths));
}

async function upload(
  context: Context,
  session: string,
  { name: fileName, bytes }: Extract<LocalAttachment, { bytes: Buffer }>,
): Promise<AttachmentRef> {
  const name = randomBytes(16).toString('hex');
  for (let offset = 0; ;) {
    const part = bytes.subarray(offset, offset + ATTACHMENT_LIMITS.chunkBytes);
    const { content } = await context.call(
      'attachment/upload',
      { session, upload: name, offset, total: bytes.length },
      part.length === 0 ? {} : { bytes: part },
    );
    if (content !== null) return { content: content.sha256, name: fileName };
    offset += part.length;
  }
}

/** The whole of a regular file. It may change meanwhile, but not grow beyond the limit. */
async function readLocal(absolute: string, path: string): Promise<Buffer> {
  let file: FileHandle;
  try {
    // Without O_NONBLOCK a FIFO would wait for somebody who writes to it.
    file = await open(absolute, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (cause) {
    throw unreadable(path, cause);
  }
  try {
    const status = await file.stat();
    if (!status.isFile()) {
      throw new HoldfastError('invalid_params', `${sanitizeLine(path)} cannot be attached`, {
        why: status.isDirectory() ? 'it is a folder' : 'it is not a regular file',
        next: status.isDirectory()
          ? 'put it into the workspace with `holdfast workspace put`, and attach /workspace/…'
          : 'name a file',
      });
    }
    const buffer = Buffer.alloc(Math.min(status.size, ATTACHMENT_LIMITS.bytes) + 1);
    let length = 0;
    while (length < buffer.length) {
      const { bytesRead } = await file.read(buffer, length, buffer.length - length, length);
      if (bytesRead === 0) break;
      length += bytesRead;
    }
    if (length > ATTACHMENT_LIMITS.bytes || status.size > ATTACHMENT_LIMITS.bytes) {
      throw new HoldfastError('file_too_large', `${sanitizeLine(path)} is too large to attach`, {
        why: `it has ${formatSize(Math.max(length, status.size))}, and the maximum is ${formatSize(ATTACHMENT_LIMITS.bytes)}`,
        next: 'put it into the workspace with `holdfast workspace put`, and attach /workspace/…',
      });
    }
    return buffer.subarray(0, length);
  } catch (cause) {
    throw cause instanceof HoldfastError ? cause : unreadable(path, cause);
  } finally {
    await file.close();
  }
}

function unreadable(path: string, cause: unknown): HoldfastError {
  const code = cause instanceof Error && 'code' in cause ? cause.code : null;
  const why =
    code === 'ENOENT' ? 'there is no such file' : code === 'EACCES' ? 'it may not be read' : String(cause);
  return new HoldfastError(
    code === 'ENOENT' ? 'file_not_found' : 'invalid_params',
    `${sanitizeLine(path)} cannot be attached`,
    { why, cause },
  );
}

/** One attachment for people, on a line. */
export function formatAttachment(one: Attachment): string {
  if (one.kind === 'link') return sanitizeLine(one.path);
  return `${sanitizeLine(one.name)} (${one.kind === 'image' ? sanitizeLine(one.content.mediaType) : 'file'}, ${formatSize(one.content.bytes)})`;
}
