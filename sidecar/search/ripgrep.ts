import { type ChildProcess, spawn } from 'node:child_process';
import type { Directory } from '../files/directory.ts';

const STDERR_BYTES = 4096;

export interface RipgrepExit {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stderr: string;
}

/** One run of ripgrep below an open folder. `kill` ends it at once. */
export class Ripgrep {
  readonly exited: Promise<RipgrepExit>;
  readonly stdout: AsyncIterable<Buffer>;
  readonly #child: ChildProcess;

  constructor(program: string, args: readonly string[], folder: Directory) {
    // The child enters the folder through its descriptor, which it has until exec. It gets no environment.
    const child = spawn(program, args, { cwd: folder.selfPath, env: {}, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    this.stdout = child.stdout;
    let complaint = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      if (complaint.length < STDERR_BYTES) complaint += text;
    });
    this.exited = new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (code, signal) =>
        resolve({ code, signal, stderr: complaint.slice(0, STDERR_BYTES) }),
      );
    });
    this.exited.catch(() => undefined); // The reader of the output awaits `exited` afterwards.
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }
}
