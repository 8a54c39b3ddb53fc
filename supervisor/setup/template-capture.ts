import type { SetupTemplate } from '../store/setups.ts';
import type { SetupFile } from './secret-scan.ts';

export interface CaptureOptions {
  /** Paths below HOME that a profile keeps from sandbox to sandbox. */
  readonly kept: readonly string[];
  /** Called with everything that is in the workspace and in HOME, by their paths in the sandbox. What it throws ends the capture. */
  readonly inspect: (files: AsyncIterable<SetupFile>) => Promise<void>;
  readonly signal: AbortSignal;
}

/** Keeps what the commands of setups leave, for new sessions. */
export interface TemplateCapture {
  /**
   * Stores workspace and HOME of a setup whose sidecar runs, and nothing else of it. Errors: those of `inspect` and of snapshots.
   * Nothing remains of what fails once `remove` was called.
   */
  capture(setupId: string, options: CaptureOptions): Promise<SetupTemplate>;
  /** Idempotent. */
  remove(setupId: string): Promise<void>;
  /** The ids of setups of which something is stored. */
  list(): Promise<string[]>;
}
