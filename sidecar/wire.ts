import { z } from 'zod';
import { TerminalIdSchema, TurnIdSchema } from '../protocol/ids.ts';
import { FILES_SIDECAR_METHODS, WorkspacePathSchema } from '../protocol/files.ts';
import { SEARCH_SIDECAR_METHODS } from '../protocol/search.ts';
import { SNAPSHOT_CALLS } from '../snapshot-format/sidecar-calls.ts';
import { TERMINAL_LIMITS, WindowSizeSchema } from '../protocol/terminals.ts';
import { WATCH_SIDECAR_METHODS } from '../protocol/watch.ts';

/**
 * supervisor → sidecar, over the same framing as clients use. The sidecar is trusted code beside hostile files:
 * the supervisor still parses every answer.
 */

/** Where things are inside the containers. */
export const IN_SANDBOX = {
  workspace: '/workspace',
  agent: '/agent',
  /** Program files, read-only in both containers. */
  runtime: '/opt/holdfast',
  /** The session's run directory, shared by both containers, writable by the agent. */
  run: '/run/holdfast',
  /** The sidecar's socket lives here; only the sidecar has it. */
  control: '/ctl',
  socketName: 'sidecar.sock',
  /** In there, and kept for the next sidecar where something is in it: notes of modes that a look or a restore has lent itself. */
  temporaryChmodsName: 'snapshots',
  /** The same: notes of temporary entries that the sidecar has in the workspace. */
  temporaryEntriesName: 'entries',
} as const;

/**
 * The run directory (agent-writable: the sidecar trusts nothing it finds there, opens with O_NOFOLLOW|O_NONBLOCK and checks
 * by descriptor):
 *
 *   requests                     FIFO, sidecar → runner, made by the runner; its lines: guest/runner.sh
 *   worker/requests              FIFO, sidecar → warm worker, made by the runner; one line each, `TURN` or `TURN tmp`
 *   turns/TURN/launch            shell text with the arguments and the environment, every word quoted
 *   turns/TURN/kind              `command` or `handler`, for the next sidecar
 *   turns/TURN/input             bytes for stdin, or the handler's JSON
 *   turns/TURN/stdout, stderr    appended to by the agent's processes
 *   turns/TURN/started           made by whoever takes the turn: there is only one who can
 *   turns/TURN/pid               process group, runner and warm worker
 *   turns/TURN/worker            handler only: JSON of `TurnProgress.worker`, once the agent's code is loaded
 *   turns/TURN/result            handler only: JSON, see `HandlerResultSchema`, renamed into place
 *   turns/TURN/exit.tmp          made by the sidecar with room for `exit`, so that a full disk does not lose it
 *   turns/TURN/exit              decimal exit code, or `-` where nobody knows it, and after it the limits that were met (`Limit`),
 *                                renamed into place when the turn's process, or the worker before it answered, has ended
 *   terminals/TERMINAL/launch    as for a turn
 *   terminals/TERMINAL/started   as for a turn
 *   terminals/TERMINAL/running   written once telnetd has input, output and done open
 *   terminals/TERMINAL/pts       number of its pty
 *   terminals/TERMINAL/input, output   FIFOs, keys and output as telnet has them; output begins after byte 0x1e
 *   terminals/TERMINAL/code      decimal exit code; then the pty is kept until a line is in the FIFO `done`
 *   terminals/TERMINAL/exit      decimal exit code once telnetd has ended
 */
export const SIDECAR_PROTOCOL = '2';

export const TurnLaunchSchema = z.object({
  turnId: TurnIdSchema,
  kind: z.enum(['command', 'handler']),
  /** command: the program and its arguments. handler: empty. */
  argv: z.array(z.string()),
  env: z.record(z.string(), z.string()),
  /** handler: file below /agent. */
  entry: z.string().nullable(),
  /** Empty /tmp first: nothing else is live in the sandbox. */
  freshTmp: z.boolean(),
});
export type TurnLaunch = z.infer<typeof TurnLaunchSchema>;

/**
 * What ran out. `memory`: the kernel killed a process. `processes`: a process could not be started. `workspace`, `tmp`, `home`:
 * /workspace, /tmp or HOME is full; `disk`: one of them, not known which.
 */
export const LimitSchema = z.enum(['memory', 'processes', 'workspace', 'tmp', 'home', 'disk']);
export type Limit = z.infer<typeof LimitSchema>;

export const TurnProgressSchema = z.object({
  state: z.enum(['absent', 'accepted', 'running', 'ended']),
  /** Bytes there are in all, by stream. */
  stdout: z.number().int().nonnegative(),
  stderr: z.number().int().nonnegative(),
  result: z.number().int().nonnegative(),
  exitCode: z.number().int().nullable(),
  worker: z.object({ id: z.string(), reused: z.boolean(), startMs: z.number().nullable() }).nullable(),
  /** The warm worker died before it answered. */
  workerDied: z.boolean(),
  /** Limits of the sandbox that processes met during the turn. */
  limits: z.array(LimitSchema).default([]),
  /** The disk of the run directory has no room: output, and the answer of a handler, wait for it. */
  diskFull: z.boolean().default(false),
  /** What the agent did to the files of the turn, so that its end cannot become known. */
  damage: z.string().nullable().default(null),
});
export type TurnProgress = z.infer<typeof TurnProgressSchema>;

export const TerminalLaunchSchema = WindowSizeSchema.extend({
  terminalId: TerminalIdSchema,
  /** Empty: the image's shell. */
  argv: z.array(z.string()),
  env: z.record(z.string(), z.string()),
  cwd: z.string(),
});
export type TerminalLaunch = z.infer<typeof TerminalLaunchSchema>;

export const TerminalProgressSchema = z.object({
  /** `ended` once all of its output has been read from it. */
  state: z.enum(['absent', 'starting', 'running', 'ended']),
  /** The bytes of its output that there are. */
  start: z.number().int().nonnegative(),
  total: z.number().int().nonnegative(),
  /** Null also where its container went away. */
  exitCode: z.number().int().nullable(),
  /** How long nobody has read or typed, and it has said nothing. */
  idleMs: z.number().nonnegative(),
});
export type TerminalProgress = z.infer<typeof TerminalProgressSchema>;

/** What a warm worker says. The agent can write anything there: parse it. */
export const HandlerResultSchema = z.discriminatedUnion('ok', [
  z.object({ ok: z.literal(true), output: z.json() }),
  z.object({
    ok: z.literal(false),
    error: z.object({
      /** Name of the exception's class; ours are NoHandler, NotSerializable, ProcessExit and MissingProgram. */
      type: z.string(),
      message: z.string(),
      traceback: z.string().optional(),
      /** What the person can do, where we know. */
      next: z.string().optional(),
      limits: z.array(LimitSchema).optional(),
    }),
  }),
]);
export type HandlerResult = z.infer<typeof HandlerResultSchema>;

/** What a new workspace begins with. Folders come before what is in them. */
export const SeedEntrySchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('folder'), path: WorkspacePathSchema }),
  /** Its `size` bytes are behind the message, in the order of the entries. */
  z.object({
    kind: z.literal('file'),
    path: WorkspacePathSchema,
    mode: z.number().int().min(0).max(0o777),
    size: z.number().int().nonnegative(),
  }),
  /** `target`: its text, base64. */
  z.object({ kind: z.literal('link'), path: WorkspacePathSchema, target: z.base64() }),
]);

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
  /** True once the runner in the agent container has opened its FIFO; waits at most a minute. */
  'agent/ready': {
    params: z.object({ timeoutMs: z.number().int() }),
    result: z.object({ ready: z.boolean() }),
  },
  /**
   * Starts a turn with `input` as the bytes behind the message. Asking again with the same id only reports, and repeats the
   * request where nobody has taken it.
   */
  'turn/launch': { params: TurnLaunchSchema, result: TurnProgressSchema, bytes: 'params' },
  /**
   * Waits up to `waitMs` (at most a minute) until there is more than the given offsets or the turn has ended. `absent`: there
   * is no such directory, or the agent removed it while the turn ran; then its end cannot become known. `workerDied`: the
   * handler's worker ended before it answered, `exitCode` is its own. Processes that a turn leaves behind may go on writing
   * after `ended`.
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
  /** Bytes of one stream from `offset`, at most `limit` (≤ 1 MiB). `total` is what there is now: an agent can make it smaller. */
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
  /** TERM to the turn's processes, KILL after `graceMs`. For a handler turn the warm worker goes with it. */
  'turn/kill': {
    params: z.object({ turnId: TurnIdSchema, graceMs: z.number().int() }),
    result: z.object({}),
  },
  /** Everything was read: the turn's directory goes. A turn that still runs is killed. */
  'turn/remove': { params: z.object({ turnId: TurnIdSchema }), result: z.object({}) },
  'turn/list': { params: z.object({}), result: z.object({ turns: z.array(z.string()) }) },
  /** Kills the processes of an exec by its marker in their environment (`HOLDFAST_EXEC=ID`). */
  'exec/kill': { params: z.object({ exec: z.string(), signal: z.string() }), result: z.object({}) },
  /** Starts a terminal; for one that is there already it only reports. */
  'terminal/open': { params: TerminalLaunchSchema, result: TerminalProgressSchema },
  /** Waits up to `waitMs` for its start, then for its end. */
  'terminal/progress': {
    params: z.object({ terminalId: TerminalIdSchema, waitMs: z.number().int() }),
    result: TerminalProgressSchema,
  },
  /** See `terminal/read` of the clients' protocol. */
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
  /** Answered when the terminal has taken all of it. */
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
  /** Its output goes, and the terminal itself where it runs. */
  'terminal/remove': { params: z.object({ terminalId: TerminalIdSchema }), result: z.object({}) },
  'workspace/usage': {
    params: z.object({}),
    result: z.object({ bytes: z.number().int(), files: z.number().int(), directories: z.number().int() }),
  },
  /** Removes everything below /workspace, whatever its modes and depth; the folder itself stays. Progress is notified. */
  'workspace/clear': {
    params: z.object({}),
    result: z.object({ files: z.number().int(), bytes: z.number().int() }),
  },
  ...FILES_SIDECAR_METHODS,
  ...WATCH_SIDECAR_METHODS,
  ...SEARCH_SIDECAR_METHODS,
  ...SNAPSHOT_CALLS,
  /** Makes what is not there; whatever is, stays. May be repeated. */
  'files/seed': {
    params: z.object({ entries: z.array(SeedEntrySchema).max(2000) }),
    result: z.object({ made: z.number().int(), kept: z.number().int() }),
    bytes: 'params',
  },
  /**
   * Answered when a process in the sandbox connects to the proxy's listener, which is there while somebody asks. Then the connection
   * carries that process's bytes as `protocol/wire/tunnel-frames.ts` has them, and nothing else any more. The sidecar says nothing
   * before it hears a first piece, so that the answer is the last thing that is read as a message: the supervisor begins
   * with one byte, which belongs to nobody. Progress tells `listening` once the listener is there, and `refused` with how many
   * connections have been reset since. `waiting`: how many others have connected and wait. `hostPort`: not the proxy's listener, but the
   * one for this port of the supervisor's machine (`HOST_MACHINE`).
   */
  'egress/accept': {
    params: z.object({ hostPort: z.number().int().min(1).max(65_535).optional() }),
    result: z.object({ waiting: z.number().int().nonnegative() }),
  },
  /** Reads a small file below /workspace as the agent sees it; for conformance checks and `doctor`. At most 1 MiB. */
  'workspace/read': {
    params: z.object({ path: z.string() }),
    result: z.object({ size: z.number().int() }),
    bytes: 'result',
  },
} as const;
