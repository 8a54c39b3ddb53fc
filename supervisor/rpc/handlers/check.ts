import type { CHECK_METHODS } from '../../../protocol/checks.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { Checks } from '../../checks/checks.ts';
import type { SessionRow } from '../../store/sessions.ts';
import type { Client } from './session.ts';

/** The answers to `check/*`. */
export function checkHandlers<P extends Client>({
  checks,
  findSession,
}: {
  readonly checks: Checks;
  /** Errors: `not_found`, `ambiguous_name`. */
  readonly findSession: (reference: string) => SessionRow;
}): Handlers<typeof CHECK_METHODS, P> {
  return {
    'check/run': async (
      { session, name, of = 'workspace', again = false, output },
      { signal, progress, peer },
    ) =>
      await checks.run(findSession(session), {
        name,
        of,
        again,
        signal,
        onOutput: async (stream, bytes) => {
          if (output !== undefined) await peer.notify('check/output', { output, stream }, bytes);
        },
        onProgress: (stage) => progress(stage),
      }),
    'check/list': ({ session, of }) => ({ checks: checks.list(findSession(session), of) }),
  };
}
