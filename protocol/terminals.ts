import { z } from 'zod';
import { DispatchResultSchema, OpIdSchema, TimeSchema } from './entities.ts';
import { SessionIdSchema, SessionRefSchema, TerminalIdSchema } from './ids.ts';

export const TERMINAL_LIMITS = {
  /** Maximum open terminals per session. */
  open: 16,
  /** Ended terminals per session whose last output can still be read. */
  ended: 16,
  /** Guaranteed bytes of stored output. Up to twice as many are stored. */
  scrollback: 2 ** 20,
  /** Maximum bytes per message. */
  chunk: 2 ** 18,
  /** How many unread bytes a terminal may produce. Small, so that ^C takes effect quickly. */
  readAhead: 2 ** 18,
} as const;

const side = z.number().int().min(1).max(10_000);
/** Size of a terminal window. */
export const WindowSizeSchema = z.object({ columns: side, rows: side });
export type WindowSize = z.infer<typeof WindowSizeSchema>;

export const TerminalSchema = z.object({
  terminalId: TerminalIdSchema,
  sessionId: SessionIdSchema,
  status: z.enum(['running', 'ended']),
  /** Program and arguments; empty for the image's shell. */
  command: z.array(z.string()),
  cwd: z.string(),
  createdAt: TimeSchema,
  endedAt: TimeSchema.nullable(),
  /** Null while it runs, and if its sandbox was lost. */
  exitCode: z.number().int().nullable(),
  /** Why it ended, if its program did not exit by itself. */
  why: z.string().nullable(),
});
export type Terminal = z.infer<typeof TerminalSchema>;

const terminal = z.object({ terminal: TerminalIdSchema });
const offset = z.number().int().nonnegative();

/**
 * A terminal is a program with a pseudo-terminal in the agent's container. It belongs to its session and not to the
 * client that opened it: it keeps running when its clients and the supervisor end, and its last output can be read
 * again. It ends with its program, with `terminal/close`, or with its sandbox.
 */
export const TERMINAL_METHODS = {
  /**
   * Dispatches like a turn. Default command: the image's shell. Repeated with the same `opId` it returns the same
   * terminal in its current state. Errors: `overloaded` if too many are open.
   */
  'terminal/open': {
    params: WindowSizeSchema.extend({
      session: SessionRefSchema,
      command: z.array(z.string().max(131_072)).min(1).max(4096).optional(),
      cwd: z.string().min(1).max(4096).optional(),
      env: z.record(z.string(), z.string()).optional(),
      opId: OpIdSchema.optional(),
    }),
    result: z.object({ terminal: TerminalSchema, sandbox: DispatchResultSchema }),
    repeat: 'opId',
    whenDamaged: 'refused',
  },
  /** Lists the terminals of one session or of all, newest first. Includes ended ones while their output is stored. */
  'terminal/list': {
    params: z.object({ session: SessionRefSchema.optional() }),
    result: z.object({ terminals: z.array(TerminalSchema) }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Resumes a paused session. `start` and `total`: the range of stored output. */
  'terminal/attach': {
    params: terminal,
    result: z.object({ terminal: TerminalSchema, start: offset, total: offset }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * Output from `offset` on; waits up to `waitMs` for some. Output older than the scrollback is skipped: `offset` of the
   * response says where its bytes begin. The reader sets the pace of the program. `ended` without bytes means the end of
   * the output; `why` says why it ended, if its program did not exit by itself.
   */
  'terminal/read': {
    params: terminal.extend({
      offset,
      limit: z.number().int().min(1).max(TERMINAL_LIMITS.chunk).optional(),
      waitMs: z.number().int().min(0).max(60_000).optional(),
    }),
    result: z.object({
      offset,
      total: offset,
      ended: z.boolean(),
      exitCode: z.number().int().nullable(),
      why: z.string().nullable(),
    }),
    bytes: 'result',
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Input. Responds when the terminal has accepted it, which may wait while the session is paused. */
  'terminal/write': {
    params: terminal,
    result: z.object({}),
    bytes: 'params',
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** Takes effect when the session runs. */
  'terminal/resize': {
    params: WindowSizeSchema.extend({ terminal: TerminalIdSchema }),
    result: z.object({}),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Sends SIGHUP and then SIGKILL to all its processes. Discards the output of a terminal that has already ended. */
  'terminal/close': {
    params: terminal,
    result: z.object({ terminal: TerminalSchema }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
} as const;
