import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { PayloadBuffers } from '../../../protocol/wire/payload-buffers.ts';
import { WorkspaceFiles } from '../../../sidecar/files/workspace-files.ts';

export const signal = new AbortController().signal;
export const tree = { signal, onProgress: () => undefined };
export const stat = { follow: true, version: true, signal };
export const everything = {
  offset: 0,
  length: 4 * 2 ** 20,
  ifVersion: undefined,
  signal,
  payloads: new PayloadBuffers(),
};

export async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    if (error instanceof HoldfastError) return error.code;
    throw error;
  }
  return 'none';
}

/** How names are found, and whether that is without native calls: what is told of a workspace is to hold either way. */
export const WAYS = [
  ['the kernel resolves', false],
  ['every step is walked', true],
] as const;

/** A workspace of its own for each test that follows, with what a test does in it. */
export function workspaceScene(withoutNative: boolean) {
  let top = '';
  let files: WorkspaceFiles;

  beforeEach(() => {
    top = mkdtempSync(join(tmpdir(), 'holdfast-files-'));
    mkdirSync(join(top, 'workspace'));
    mkdirSync(join(top, 'control'));
    writeFileSync(join(top, 'canary'), 'outside');
    files = new WorkspaceFiles({
      workspace: join(top, 'workspace'),
      control: join(top, 'control'),
      withoutNative,
    });
  });
  afterEach(() => {
    files.close();
    rmSync(top, { recursive: true, force: true });
  });

  return {
    /** The folder that the workspace is in, with `canary` beside it. */
    get top(): string {
      return top;
    },
    get files(): WorkspaceFiles {
      return files;
    },
    /** Where a name of the workspace lies. */
    at: (name: string): string => `${top}/workspace/${name}`,
    read: async (path: string): Promise<string> => (await files.read(path, everything)).bytes.toString(),
    put: (path: string, text: string, how: object = { create: true, overwrite: true }) =>
      files.write(path, how, Buffer.from(text), signal),
    /** Temporary files of ours that are still there. */
    left: (): string[] => readdirSync(join(top, 'workspace')).filter((name) => name.startsWith('.holdfast')),
  };
}
