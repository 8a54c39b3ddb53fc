import { z } from 'zod';
import { AttachmentNameSchema } from '../protocol/attachments.ts';
import { CREDENTIAL_PORTS } from '../protocol/credentials.ts';
import { ProcessIdSchema, TerminalIdSchema, TurnIdSchema } from '../protocol/ids.ts';
import { OpenPortsSchema } from '../protocol/open-ports.ts';
import { FILES_SIDECAR_METHODS, WorkspacePathSchema } from '../protocol/files.ts';
import { CONFIG_LIMITS } from '../protocol/agent-config.ts';
import { HOME_LIMITS, HomePathSchema } from '../protocol/agent-home.ts';
import { SEARCH_SIDECAR_METHODS } from '../protocol/search.ts';
import { SNAPSHOT_CALLS } from '../snapshot-format/sidecar-calls.ts';
import { TERMINAL_LIMITS, WindowSizeSchema } from '../protocol/terminals.ts';
import { WATCH_SIDECAR_METHODS } from '../protocol/watch.ts';

/**
 * The protocol between supervisor and sidecar. It has the same framing as the clients' protocol. The sidecar is trusted
 * code that works on hostile files, so the supervisor still parses every answer.
 */

/** Paths inside the containers. */
export const IN_SANDBOX = {
  workspace: '/workspace',
  /** The agent's HOME. Both containers mount it. */
  home: '/home/agent',
  agent: '/agent',
  /** Our program files, mounted read-only in both containers. */
  runtime: '/opt/holdfast',
  /** The session's run directory. Both containers share it, and the agent can write to it. */
  run: '/run/holdfast',
  /** Holds the sidecar's socket. Only the sidecar container mounts it. */
  control: '/ctl',
  socketName: 'sidecar.sock',
  /** Directory in `control` with the records of temporary chmods. The next sidecar gets it when it is not empty. */
  temporaryChmodsName: 'snapshots',
  /**
   * Directory in `control` with the records of temporary entries in the workspace. The next sidecar gets it when it is
   * not empty.
   */
  temporaryEntriesName: 'entries',
  /** Directory in `control` with the same two for HOME. */
  homeRecordsName: 'home',
  /** Files in memory, only while commands of a setup run. */
  secrets: '/run/secrets',
  /** Directory in `control` with the output of durable processes and the notes about them. */
  processesName: 'processes',
} as const;

/**
 * The run directory. The agent can write to all of it, so the sidecar trusts nothing that it finds there: it opens
 * files with O_NOFOLLOW|O_NONBLOCK and checks them by descriptor. Uppercase words are ids.
 *
 *   requests                  FIFO, sidecar → runner; created by the runner. Its lines: guest/runner.sh
 *   swept                     `NONCE COUNT`: the runner's answer to the request `sweep NONCE`
 *   worker/requests           FIFO, sidecar → warm worker; created by the runner. Lines: `TURN` or `TURN tmp`
 *   manifest.json             the agent's copy of the manifest, for its information; renamed into place
 *   turns/TURN/launch         shell script with the arguments and the environment, every word quoted
 *   turns/TURN/kind           `command` or `handler`, for the next sidecar
 *   turns/TURN/input          bytes for stdin, or the handler's JSON
 *   turns/TURN/stdout, stderr output, appended to by the agent's processes
 *   turns/TURN/started        created with O_EXCL by the one process that claims the turn
 *   turns/TURN/pid            process group, runner and warm worker
 *   turns/TURN/worker         handler only: JSON of `TurnProgress.worker`, once the agent's code is loaded
 *   turns/TURN/result         handler only: JSON, see `HandlerResultSchema`; renamed into place
 *   turns/TURN/exit.tmp       placeholder for `exit`, created by the sidecar so that a full disk does not lose the code
 *   turns/TURN/exit           decimal exit code, or `-` if it is not known, followed by the limits that were reached
 *                             (`Limit`); renamed into place when the turn's process has ended, or its worker has ended
 *                             before it answered
 *   terminals/TERM/launch     as for a turn
 *   terminals/TERM/started    as for a turn
 *   terminals/TERM/running    written once telnetd has opened input, output and done
 *   terminals/TERM/pts        number of its pty
 *   terminals/TERM/input      FIFO, telnet-encoded input
 *   terminals/TERM/output     FIFO, telnet-encoded output, which starts after byte 0x1e
 *   terminals/TERM/code       decimal exit code; the pty stays until a line arrives in the FIFO `done`
 *   terminals/TERM/exit       decimal exit code, once telnetd has ended
 *   processes/PROC/launch, started, pid, exit, exit.tmp
 *                             as for a turn
 *   processes/PROC/running    written once the keeper has opened the FIFOs
 *   processes/PROC/wake       FIFO, sidecar → feeder. Its lines: guest/feed-process.sh
 *   processes/PROC/done       FIFO, sidecar → keeper: a line once the sidecar has all output of an ended program
 *   processes/PROC/stdin      FIFO, feeder → program
 *   processes/PROC/stdout, stderr
 *                             FIFOs, program → sidecar
 *   processes/PROC/in-OFFSET  input that waits for the feeder, which empties the file when the program's input has it
 *   attachments/TURN/NAME     a file that the prompt of a turn brings along; `.new\NAME` until it is complete
 */
export const SIDECAR_PROTOCOL = '2';

export const TurnLaunchSchema = z.object({
  turnId: TurnIdSchema,
  kind: z.enum(['command', 'handler']),
  /** For a command, the program and its arguments. Empty for a handler. */
  argv: z.array(z.string()),
  env: z.record(z.string(), z.string()),
  /** For a handler, its file below /agent. */
  entry: z.string().nullable(),
  /** Empty /tmp before the turn starts, because nothing else runs in the sandbox. */
  freshTmp: z.boolean(),
});
export type TurnLaunch = z.infer<typeof TurnLaunchSchema>;

/**
 * A limit of the sandbox that was reached. `memory`: the kernel killed a process. `processes`: a process could not be
 * started. `workspace`, `tmp` and `home`: /workspace, /tmp or HOME is full. `disk`: one of these is full, and it is not
 * known which.
 */
export const LimitSchema = z.enum(['memory', 'processes', 'workspace', 'tmp', 'home', 'disk']);
export type Limit = z.infer<typeof LimitSchema>;

export const TurnProgressSchema = z.object({
  state: z.enum(['absent', 'accepted', 'running', 'ended']),
  /** Total bytes of each stream so far. */
  stdout: z.number().int().nonnegative(),
  stderr: z.number().int().nonnegative(),
  result: z.number().int().nonnegative(),
  exitCode: z.number().int().nullable(),
  worker: z.object({ id: z.string(), reused: z.boolean(), startMs: z.number().nullable() }).nullable(),
  /** The warm worker exited before it answered. */
  workerDied: z.boolean(),
  /** Limits of the sandbox that were reached during the turn. */
  limits: z.array(LimitSchema).default([]),
  /** The disk of the run directory is full. Output and the answer of a handler wait until it has space. */
  diskFull: z.boolean().default(false),
  /** What the agent did to the files of the turn, if this keeps the turn's end from being known. */
  damage: z.string().nullable().default(null),
});
export type TurnProgress = z.infer<typeof TurnProgressSchema>;

/** A turn of which nothing is there. */
export const ABSENT_TURN: TurnProgress = {
  state: 'absent',
  stdout: 0,
  stderr: 0,
  result: 0,
  exitCode: null,
  worker: null,
  workerDied: false,
  limits: [],
  diskFull: false,
  damage: null,
};

export const AttachedPartSchema = z.object({
  turnId: TurnIdSchema,
  name: AttachmentNameSchema,
  offset: z.number().int().nonnegative(),
  total: z.number().int().nonnegative(),
});
export type AttachedPart = z.infer<typeof AttachedPartSchema>;

export const TerminalLaunchSchema = WindowSizeSchema.extend({
  terminalId: TerminalIdSchema,
  /** If empty, the shell of the image. */
  argv: z.array(z.string()),
  env: z.record(z.string(), z.string()),
  cwd: z.string(),
});
export type TerminalLaunch = z.infer<typeof TerminalLaunchSchema>;

export const TerminalProgressSchema = z.object({
  /** `ended` only after all output has been read from the terminal. */
  state: z.enum(['absent', 'starting', 'running', 'ended']),
  /** The range of output offsets that can be read. */
  start: z.number().int().nonnegative(),
  total: z.number().int().nonnegative(),
  /** Also null when the agent container went away. */
  exitCode: z.number().int().nullable(),
  /** How long the terminal has had no reader, no input and no output. */
  idleMs: z.number().nonnegative(),
});
export type TerminalProgress = z.infer<typeof TerminalProgressSchema>;

export const PROCESS_LIMITS = {
  /** Processes of a session, ended ones included. A start makes room by removing ended ones, the oldest first. */
  processes: 16,
  /** Bytes of one stream that wait for their acknowledgement. A program that writes more waits. */
  unacknowledged: 16 * 2 ** 20,
  /** Bytes of input that wait for the program, and in how many writes. */
  waitingInput: 16 * 2 ** 20,
  waitingWrites: 1000,
  /** Bytes of one message. */
  chunk: 2 ** 20,
} as const;

export const ProcessLaunchSchema = z.object({
  processId: ProcessIdSchema,
  argv: z.array(z.string()).min(1),
  env: z.record(z.string(), z.string()),
  cwd: z.string(),
});
export type ProcessLaunch = z.infer<typeof ProcessLaunchSchema>;

const byteOffset = z.number().int().nonnegative();
const ReadableRangeSchema = z.object({ start: byteOffset, end: byteOffset });

export const ProcessProgressSchema = z.object({
  /** `ended` only after all output has been read from the program. */
  state: z.enum(['absent', 'starting', 'running', 'ended']),
  /** Also null when its keeper or the agent container went away. */
  exitCode: z.number().int().nullable(),
  /** What can be read. After the sidecar's death, `start` may be up to 1 MiB before the acknowledged offset. */
  stdout: ReadableRangeSchema,
  stderr: ReadableRangeSchema,
  inputAccepted: byteOffset,
  /** What the agent did to the files of the process, if this keeps its end from being known. */
  damage: z.string().nullable(),
});
export type ProcessProgress = z.infer<typeof ProcessProgressSchema>;

/** The answer of a warm worker. The agent can write anything here, so the answer must be parsed. */
export const HandlerResultSchema = z.discriminatedUnion('ok', [
  z.object({ ok: z.literal(true), output: z.json() }),
  z.object({
    ok: z.literal(false),
    error: z.object({
      /** Class name of the exception. Our own are NoHandler, NotSerializable, ProcessExit and MissingProgram. */
      type: z.string(),
      message: z.string(),
      traceback: z.string().optional(),
      /** What the person can do, if that is known. */
      next: z.string().optional(),
      limits: z.array(LimitSchema).optional(),
    }),
  }),
]);
export type HandlerResult = z.infer<typeof HandlerResultSchema>;

/** One entry of a workspace's initial content. A directory comes before its entries. */
export const SeedEntrySchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('folder'), path: WorkspacePathSchema }),
  /** Its `size` bytes follow the message, in the order of the entries. */
  z.object({
    kind: z.literal('file'),
    path: WorkspacePathSchema,
    mode: z.number().int().min(0).max(0o777),
    size: z.number().int().nonnegative(),
  }),
  /** `target`: the link target in base64. */
  z.object({ kind: z.literal('link'), path: WorkspacePathSchema, target: z.base64() }),
]);

/** A file below HOME. Its `size` bytes follow the message, in the order of the files. */
export const HomeFileSchema = z.object({
  path: HomePathSchema,
  executable: z.boolean(),
  size: z.number().int().nonnegative().max(CONFIG_LIMITS.fileBytes),
});

/** Bytes of the agent's copy of the manifest. */
export const MANIFEST_COPY_BYTES = 256 * 1024;

export const SIDECAR_METHODS = {
  hello: {
    params: z.object({ protocol: z.string(), session: z.string() }),
    result: z.object({
      protocol: z.string(),
      session: z.string(),
      build: z.string(),
      watch: z.enum(['inotify', 'polling']),
    }),
  },
  /** True once the runner in the agent container has opened its FIFO. Waits at most a minute. */
  'agent/ready': {
    params: z.object({ timeoutMs: z.number().int() }),
    result: z.object({ ready: z.boolean() }),
  },
  /**
   * Kills everything in the agent container but open terminals, execs and our own shells. `left`: how many processes are
   * still there; null if the runner did not answer within `timeoutMs` (at most a minute). The agent can forge the
   * answer.
   */
  'agent/sweep': {
    params: z.object({ timeoutMs: z.number().int() }),
    result: z.object({ left: z.number().int().nonnegative().nullable() }),
  },
  /**
   * Starts a turn. The bytes behind the message are its `input`. A repeated call with the same id only reports
   * progress, and sends the request again if no process has claimed the turn.
   */
  'turn/launch': { params: TurnLaunchSchema, result: TurnProgressSchema, bytes: 'params' },
  /**
   * Waits up to `waitMs` (at most a minute) for output beyond the given offsets or for the end of the turn. `absent`:
   * the turn has no directory, or the agent removed it while the turn ran, so the end can never be known. `workerDied`:
   * the worker exited before it answered, and `exitCode` is the worker's. Processes that the turn left behind may still
   * write after `ended`.
   */
  'turn/progress': {
    params: z.object({
      turnId: TurnIdSchema,
      stdout: z.number().int(),
      stderr: z.number().int(),
      waitMs: z.number().int(),
    }),
    result: TurnProgressSchema,
  },
  /**
   * Bytes of one stream from `offset`, at most `limit` (≤ 1 MiB). `total` is the current size; an agent can shrink it.
   */
  'turn/read': {
    params: z.object({
      turnId: TurnIdSchema,
      stream: z.enum(['stdout', 'stderr', 'result']),
      offset: z.number().int().nonnegative(),
      limit: z.number().int().positive(),
    }),
    result: z.object({ offset: z.number().int(), total: z.number().int() }),
    bytes: 'result',
  },
  /**
   * Sends TERM to the turn's processes, and KILL after `graceMs`. For a handler turn this also ends the warm worker.
   */
  'turn/kill': {
    params: z.object({ turnId: TurnIdSchema, graceMs: z.number().int() }),
    result: z.object({}),
  },
  /**
   * Writes a part of a file that the prompt of a turn brings along; the last one gives the file its name. `stored`: bytes of the file
   * that are there, 0 if it has to be written from its beginning because earlier parts are gone. The files of the oldest turns make
   * room. Errors: `no_space`, `sandbox_lost`.
   */
  'attachment/write': {
    params: AttachedPartSchema,
    result: z.object({ stored: z.number().int().nonnegative() }),
    bytes: 'params',
  },
  /** Removes the turn's directory after everything was read. A turn that still runs is killed. */
  'turn/remove': { params: z.object({ turnId: TurnIdSchema }), result: z.object({}) },
  'turn/list': { params: z.object({}), result: z.object({ turns: z.array(z.string()) }) },
  /** Kills the processes of an exec. They are found by `HOLDFAST_EXEC=ID` in their environment. */
  'exec/kill': { params: z.object({ exec: z.string(), signal: z.string() }), result: z.object({}) },
  /** Starts a terminal. If it exists already, only reports its progress. */
  'terminal/open': { params: TerminalLaunchSchema, result: TerminalProgressSchema },
  /** Waits up to `waitMs` for the terminal's start, or for its end if it has started. */
  'terminal/progress': {
    params: z.object({ terminalId: TerminalIdSchema, waitMs: z.number().int() }),
    result: TerminalProgressSchema,
  },
  /** See `terminal/read` in the clients' protocol. */
  'terminal/read': {
    params: z.object({
      terminalId: TerminalIdSchema,
      offset: z.number().int().nonnegative(),
      limit: z.number().int().min(1).max(TERMINAL_LIMITS.chunk),
      waitMs: z.number().int(),
    }),
    result: TerminalProgressSchema.extend({ offset: z.number().int().nonnegative() }),
    bytes: 'result',
  },
  /** Answers after the terminal has accepted all input. */
  'terminal/write': {
    params: z.object({ terminalId: TerminalIdSchema }),
    result: z.object({}),
    bytes: 'params',
  },
  'terminal/resize': {
    params: WindowSizeSchema.extend({ terminalId: TerminalIdSchema }),
    result: z.object({}),
  },
  /** Does not wait for the end. */
  'terminal/close': { params: z.object({ terminalId: TerminalIdSchema }), result: z.object({}) },
  /** Removes the terminal's output, and closes the terminal if it still runs. */
  'terminal/remove': { params: z.object({ terminalId: TerminalIdSchema }), result: z.object({}) },
  /** Starts a process. If it exists already, only reports its progress, and repeats a request that was not claimed. */
  'process/start': { params: ProcessLaunchSchema, result: ProcessProgressSchema },
  'process/progress': { params: z.object({ processId: ProcessIdSchema }), result: ProcessProgressSchema },
  /**
   * Waits up to `waitMs` for output beyond `offset`, or for the end. Answers with the bytes from `offset`, or from the
   * first that can still be read.
   */
  'process/read': {
    params: z.object({
      processId: ProcessIdSchema,
      stream: z.enum(['stdout', 'stderr']),
      offset: byteOffset,
      limit: z.number().int().min(1).max(PROCESS_LIMITS.chunk),
      waitMs: z.number().int(),
    }),
    result: z.object({ offset: byteOffset, progress: ProcessProgressSchema }),
    bytes: 'result',
  },
  'process/acknowledge': {
    params: z.object({
      processId: ProcessIdSchema,
      stream: z.enum(['stdout', 'stderr']),
      offset: byteOffset,
    }),
    result: z.object({}),
  },
  /**
   * Appends input. Bytes before `accepted` are skipped, so a repeated call changes nothing. `undecided`: it is not known
   * whether the program has bytes before `accepted`, and it gets no more.
   */
  'process/write': {
    params: z.object({ processId: ProcessIdSchema, offset: byteOffset }),
    result: z.object({ accepted: byteOffset, undecided: z.boolean() }),
    bytes: 'params',
  },
  'process/close-input': { params: z.object({ processId: ProcessIdSchema }), result: z.object({}) },
  /** Does not wait for the end. */
  'process/kill': {
    params: z.object({ processId: ProcessIdSchema, graceMs: z.number().int() }),
    result: z.object({}),
  },
  /** Removes its files. A process that still runs is killed first. */
  'process/remove': { params: z.object({ processId: ProcessIdSchema }), result: z.object({}) },
  'process/list': { params: z.object({}), result: z.object({ processes: z.array(ProcessIdSchema) }) },
  'workspace/usage': {
    params: z.object({}),
    result: z.object({ bytes: z.number().int(), files: z.number().int(), directories: z.number().int() }),
  },
  /** Removes everything below /workspace, whatever its modes and depth. The directory itself stays. Sends progress. */
  'workspace/clear': {
    params: z.object({}),
    result: z.object({ files: z.number().int(), bytes: z.number().int() }),
  },
  /**
   * Makes HOME what a new sandbox begins with: removes everything except the kept paths, and writes our start files where
   * they are missing. Called before a process of the agent runs. Can be repeated after a crash. Sends progress.
   */
  'home/prepare': {
    params: z.object({ kept: z.array(HomePathSchema).max(HOME_LIMITS.paths) }),
    result: z.object({ files: z.number().int(), bytes: z.number().int() }),
  },
  /**
   * Creates files in HOME where their names are free, after `home/prepare` and before a process of the agent runs. Follows no link.
   * Can be repeated.
   */
  'home/fill': {
    params: z.object({ files: z.array(HomeFileSchema).max(CONFIG_LIMITS.files) }),
    result: z.object({ made: z.number().int(), kept: z.number().int() }),
    bytes: 'params',
  },
  /** Removes everything in HOME, kept or not. The directory itself stays. Sends progress. */
  'home/clear': {
    params: z.object({}),
    result: z.object({ files: z.number().int(), bytes: z.number().int() }),
  },
  /** Where programs in the sandbox listen. */
  'network/ports': { params: z.object({}), result: OpenPortsSchema },
  /** Replaces the agent's copy of the manifest, `manifest.json` in the run directory; the bytes are at most 256 KiB. */
  'run/manifest': { params: z.object({}), result: z.object({}), bytes: 'params' },
  /** The size of what is in the run directory. */
  'run/usage': {
    params: z.object({}),
    result: z.object({ bytes: z.number().int(), files: z.number().int(), directories: z.number().int() }),
  },
  'home/usage': {
    params: z.object({}),
    result: z.object({ bytes: z.number().int(), files: z.number().int(), directories: z.number().int() }),
  },
  ...FILES_SIDECAR_METHODS,
  ...WATCH_SIDECAR_METHODS,
  ...SEARCH_SIDECAR_METHODS,
  ...SNAPSHOT_CALLS,
  /** Creates entries that do not exist, and leaves existing ones alone. Can be repeated. */
  'files/seed': {
    params: z.object({ entries: z.array(SeedEntrySchema).max(2000) }),
    result: z.object({ made: z.number().int(), kept: z.number().int() }),
    bytes: 'params',
  },
  /**
   * Answers when a process in the sandbox connects to the proxy's listener, which exists while at least one call waits.
   * After the answer the connection carries only the bytes of that process, framed as in
   * `protocol/wire/tunnel-frames.ts`. The sidecar sends nothing before it receives the first chunk, so the answer is
   * the last message on the connection. The supervisor starts with one byte that belongs to no message. Progress
   * reports `listening` once the listener exists, and `refused` with the number of connections that were reset since.
   * `waiting`: the number of other connections that wait. `hostPort`: use the listener for this port of the
   * supervisor's machine (`HOST_MACHINE`) instead of the proxy's. `credentialPort`: use the listener for a credential,
   * which stays when no supervisor is there, and then answers 503. Errors: `conflict` if a process has the port.
   */
  'egress/accept': {
    params: z.object({
      hostPort: z.number().int().min(1).max(65_535).optional(),
      credentialPort: z.number().int().min(CREDENTIAL_PORTS.first).max(CREDENTIAL_PORTS.last).optional(),
    }),
    result: z.object({ waiting: z.number().int().nonnegative() }),
  },
  /** The same for the port on which processes of the sandbox call the tools of Holdfast (`AGENT_TOOLS`). */
  'tools/accept': {
    params: z.object({}),
    result: z.object({ waiting: z.number().int().nonnegative() }),
  },
  /** Reads a small file below /workspace as the agent sees it, for conformance checks and `doctor`. At most 1 MiB. */
  'workspace/read': {
    params: z.object({ path: z.string() }),
    result: z.object({ size: z.number().int() }),
    bytes: 'result',
  },
} as const;
