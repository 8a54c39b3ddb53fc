import { TERMINAL_LIMITS, type TERMINAL_METHODS } from '../../../protocol/terminals.ts';
import { type Handlers, withBytes } from '../../../protocol/wire/shapes.ts';
import type { Terminals } from '../../terminals/terminals.ts';

export interface TerminalHandlersOptions {
  readonly terminals: Terminals;
  /** The id of the session that is meant. Errors: `not_found`, `ambiguous_name`. */
  readonly sessionId: (reference: string) => string;
}

/** The answers to `terminal/*`. */
export function terminalHandlers<P>({
  terminals,
  sessionId,
}: TerminalHandlersOptions): Handlers<typeof TERMINAL_METHODS, P> {
  return {
    'terminal/open': async ({ session, command, cwd, env, columns, rows, opId }) => {
      const { terminal, dispatched } = await terminals.open(sessionId(session), {
        command: command ?? [],
        cwd: cwd ?? '/workspace',
        env: env ?? {},
        columns,
        rows,
        opId,
      });
      return { terminal, sandbox: dispatched };
    },
    'terminal/list': ({ session }) => ({
      terminals: terminals.list(session === undefined ? null : sessionId(session)),
    }),
    'terminal/attach': ({ terminal }) => terminals.attach(terminal),
    'terminal/read': async ({ terminal, offset, limit, waitMs }, { signal }) => {
      const { progress, why, bytes } = await terminals.read(
        terminal,
        { offset, limit: limit ?? TERMINAL_LIMITS.chunk, waitMs: waitMs ?? 0 },
        signal,
      );
      const { offset: from, total, state, exitCode } = progress;
      return withBytes({ offset: from, total, ended: state === 'ended', exitCode, why }, bytes);
    },
    'terminal/write': async ({ terminal }, { bytes, signal }) => {
      await terminals.write(terminal, bytes, signal);
      return {};
    },
    'terminal/resize': async ({ terminal, columns, rows }) => {
      await terminals.resize(terminal, { columns, rows });
      return {};
    },
    'terminal/close': async ({ terminal }) => ({ terminal: await terminals.close(terminal) }),
  };
}
