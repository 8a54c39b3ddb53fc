/** What a person decides where a file is there already: once, for all that follow. */
export type ExistingFileDecision = 'overwrite' | 'skip';

export interface LeftOut {
  readonly path: string;
  readonly why: string;
}

/** What an import or export has done so far. */
export class TransferReport {
  files = 0;
  folders = 0;
  links = 0;
  /** Of the files. */
  executables = 0;
  bytes = 0;
  /** There already, and left as they were. */
  existing = 0;
  leftOutCount = 0;
  /** The first of them. */
  readonly leftOut: LeftOut[] = [];

  leaveOut(path: string, why: string): void {
    this.leftOutCount += 1;
    if (this.leftOut.length < MOST_NAMED) this.leftOut.push({ path, why });
  }
}

const MOST_NAMED = 1_000;

export interface TransferOptions {
  readonly signal: AbortSignal;
  readonly onExisting: (name: string) => Promise<ExistingFileDecision>;
  readonly onProgress: (report: TransferReport, path: string) => void;
}

/** Asks once. */
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
