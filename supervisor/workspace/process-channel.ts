/**
 * Programs in the agent container that outlive supervisor and sidecar. `sidecar-process-channel.ts` implements it.
 *
 * Output is an append-only stream of bytes, addressed by offset and trimmed behind the acknowledged one. Input is
 * addressed by offset as well: `write` of bytes that were accepted before changes nothing, so a line is never sent twice.
 * Buffers are bounded: a program whose output nobody acknowledges waits in its own write.
 */
export interface ProcessChannel {
  /** Starts the program, or reports the progress of the one that has this id. */
  start(spec: ProcessSpec, signal?: AbortSignal): Promise<ProcessStatus>;
  /** Waits until there is output beyond `offset`, the program ended, or `waitMs` passed. */
  read(request: ReadRequest, signal?: AbortSignal): Promise<ProcessOutput>;
  /** Everything before `offset` is stored elsewhere and may be removed. */
  acknowledge(id: string, stream: ProcessStream, offset: number): Promise<void>;
  /**
   * Appends input at `offset`; `overloaded` if 16 MiB or 1,000 writes wait for the program. `accepted` is the offset behind the last byte that the program's input holds, or will hold
   * after a crash. `undecided`: what feeds the program was killed, so it is unknown whether bytes before `accepted` were delivered,
   * and no more will be; the caller ends the turn as interrupted and the process with it.
   */
  write(id: string, offset: number, bytes: Buffer): Promise<{ accepted: number; undecided: boolean }>;
  closeInput(id: string): Promise<void>;
  status(id: string): Promise<ProcessStatus>;
  /** TERM to the process group, and KILL after `graceMs`. */
  kill(id: string, graceMs: number): Promise<void>;
  /** Removes the process's files; a program that still runs is killed first. */
  remove(id: string): Promise<void>;
  list(): Promise<readonly string[]>;
}

export interface ProcessSpec {
  /** `proc-` and 16 characters of lower-case base32; unique in the session. */
  readonly id: string;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
}

export type ProcessStream = 'stdout' | 'stderr';

export interface ProcessStatus {
  readonly state: 'absent' | 'starting' | 'running' | 'ended';
  readonly exitCode: number | null;
  /**
   * What can be read of each stream: `start` is the acknowledged offset, or up to 1 MiB before it after the sidecar's
   * death; `end` is the offset behind the last byte.
   */
  readonly stdout: { readonly start: number; readonly end: number };
  readonly stderr: { readonly start: number; readonly end: number };
  readonly inputAccepted: number;
  /** What the agent did to the files of the channel, if this keeps the end from being known. */
  readonly damage: string | null;
}

export interface ReadRequest {
  readonly id: string;
  readonly stream: ProcessStream;
  readonly offset: number;
  /** At most 1 MiB. */
  readonly limit: number;
  /** At most a minute. */
  readonly waitMs: number;
}

export interface ProcessOutput {
  readonly offset: number;
  readonly bytes: Buffer;
  readonly status: ProcessStatus;
}
