import { z } from 'zod';
import { DispatchResultSchema, OpIdSchema, TimeSchema } from './entities.ts';
import { SessionIdSchema, SessionRefSchema, TerminalIdSchema } from './ids.ts';

export const TERMINAL_LIMITS = {
  /** Terminals that are open at a time in one session. */
  open: 16,
  /** Ended ones of a session whose last output can still be read. */
  ended: 16,
  /** Bytes of output that are always kept; up to twice as many are. */
  scrollback: 2 ** 20,
  /** Bytes that one message carries. */
  chunk: 2 ** 18,
  /** How far a terminal runs ahead of who reads it, so that ^C is felt at once. */
  readAhead: 2 ** 18,
} as const;

const side = z.number().int().min(1).max(10_000);
/** Columns and rows of a terminal's window. */
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
  /** Null while it runs, and where its sandbox went away under it. */
  exitCode: z.number().int().nullable(),
  /** Why it ended, where its program did not end by itself. */
  why: z.string().nullable(),
});
export type Terminal = z.infer<typeof TerminalSchema>;

const terminal = z.object({ terminal: TerminalIdSchema });
const offset = z.number().int().nonnegative();

/**
 * A terminal is a program with a real one in the agent's container. It belongs to its session, not to who opened it: it goes on when
 * its clients and the supervisor end, and its last output can be read again. It ends with its program, with `terminal/close`, or
 * with its sandbox.
 */
export const TERMINAL_METHODS = {
  /**
   * Dispatches like a turn. Without a command: the image's shell. Asked again with its `opId`: the terminal that was opened then, as it is now.
   * Errors: `overloaded` when too many are open.
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
  },
  /** Of one session, or of all; the newest first. Ended ones are there as long as their output is. */
  'terminal/list': {
    params: z.object({ session: SessionRefSchema.optional() }),
    result: z.object({ terminals: z.array(TerminalSchema) }),
  },
  /** Wakes its session where that is paused. `start` and `total`: which bytes of its output there are. */
  'terminal/attach': {
    params: terminal,
    result: z.object({ terminal: TerminalSchema, start: offset, total: offset }),
  },
  /**
   * Output from `offset` on; waits up to `waitMs` for some. What is older than the scrollback is left out: the answer's `offset` says
   * where its bytes begin. Whoever reads sets the pace of the program. `ended` with no bytes left means: that was all; `why` says who ended it,
   * where its program did not end by itself.
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
  },
  /** Keys; answered when the terminal has taken them, which it does not while its session is paused and much waits already. */
  'terminal/write': { params: terminal, result: z.object({}), bytes: 'params' },
  /** Takes effect when the session runs. */
  'terminal/resize': {
    params: WindowSizeSchema.extend({ terminal: TerminalIdSchema }),
    result: z.object({}),
  },
  /** HUP to all of it, then KILL. For one that has ended already its output is forgotten. */
  'terminal/close': { params: terminal, result: z.object({ terminal: TerminalSchema }) },
} as const;
