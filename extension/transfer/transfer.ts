/** What to do with files that already exist. A person decides once for all. */
export type ExistingFileDecision = 'overwrite' | 'skip';

/** How many files are copied at the same time. Each holds one part of its file in memory. */
export const FILES_TOGETHER = 16;

export interface LeftOut {
  readonly path: string;
  readonly why: string;
}

/** The progress and result of an import or export. */
export class TransferReport {
  files = 0;
  folders = 0;
  links = 0;
  /** How many of the files are executable. */
  executables = 0;
  bytes = 0;
  /** Files that already existed and were kept. */
  existing = 0;
  leftOutCount = 0;
  /** The first of the files that were left out. */
  readonly leftOut: LeftOut[] = [];

  leaveOut(path: string, why: string): void {
    this.leftOutCount += 1;
    if (this.leftOut.length < MAX_NAMED) this.leftOut.push({ path, why });
  }
}

const MAX_NAMED = 1_000;

export interface TransferOptions {
  readonly signal: AbortSignal;
  readonly onExisting: (name: string) => Promise<ExistingFileDecision>;
  readonly onProgress: (report: TransferReport, path: string) => void;
}

/** Calls `ask` once and returns the same answer from then on. */
export function askOnce(ask: (name: string) => Promise<ExistingFileDecision>): typeof ask {
  let answer: Promise<ExistingFileDecision> | undefined;
  return (name) => (answer ??= ask(name));
}

export function errorCodeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

export function joinPath(folder: Buffer, name: Buffer): Buffer {
  return Buffer.concat([folder, Buffer.from('/'), name]);
}
