import { HoldfastError } from '../../protocol/errors.ts';

/** The reason of a signal that ends a setup because nobody is left to run it: the next supervisor may be asked again. */
export function shutdownReason(): HoldfastError {
  return new HoldfastError('shutting_down', 'The supervisor is shutting down');
}

/** The error that people see for a setup that failed. `limit` in ms; `said`: the last lines of its log. */
export function failureOf(
  error: unknown,
  at: {
    readonly profile: string;
    readonly said: string;
    readonly signal: AbortSignal;
    readonly late: AbortSignal;
    readonly limit: number;
  },
): HoldfastError {
  const next = `read its output with \`holdfast setup log ${at.profile}\`; to try again, deploy the profile again`;
  const { reason } = at.signal as { reason: unknown };
  if (reason instanceof HoldfastError && reason.code === 'shutting_down') {
    return new HoldfastError('shutting_down', `The setup of ${at.profile} was not completed`, {
      why: 'the supervisor is shutting down',
      next: `run it again: \`holdfast setup run ${at.profile}\`, or deploy the profile`,
      cause: error,
    });
  }
  if (at.signal.aborted)
    return new HoldfastError('cancelled', `The setup of ${at.profile} was cancelled`, { cause: error });
  if (at.late.aborted) {
    return new HoldfastError('timeout', `The setup of ${at.profile} took too long`, {
      why: `it may take ${Math.round(at.limit / 1000)} s; \`setup.timeout\` allows more`,
      next,
      details: { setupOf: at.profile },
      cause: error,
    });
  }
  const failure = HoldfastError.from(error);
  if (failure.code !== 'setup_failed') return failure;
  const said = at.said === '' ? '' : `; it said: ${at.said}`;
  return new HoldfastError('setup_failed', failure.message, {
    why: `${failure.why ?? ''}${said}`,
    next: failure.next ?? next,
    details: { ...failure.details, setupOf: at.profile },
    cause: error,
  });
}
