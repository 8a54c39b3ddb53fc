import { HoldfastError } from '../../../protocol/errors.ts';

/**
 * The engine answered with an error status. Methods interpret the statuses they know; all others become
 * `engine_error`.
 */
export class EngineRefusal extends Error {
  override readonly name = 'EngineRefusal';
  readonly status: number;
  readonly reason: string;

  constructor(what: string, status: number, reason: string) {
    super(`${what}: ${reason} (${status})`);
    this.status = status;
    this.reason = reason;
  }
}

export function isRefusal(error: unknown, ...statuses: number[]): error is EngineRefusal {
  return error instanceof EngineRefusal && (statuses.length === 0 || statuses.includes(error.status));
}

const START =
  'start Docker: `sudo systemctl start docker` (without systemd: `sudo dockerd &`), or Docker Desktop';

/** Explains to a person why an engine cannot be reached. */
export function engineUnavailable(what: string, socketPath: string, cause: unknown): HoldfastError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  const details = { endpoint: `unix://${socketPath}` };
  switch (code) {
    case 'ENOENT':
    case 'ENOTDIR':
      return new HoldfastError('engine_unavailable', what, {
        why: `there is no ${socketPath}: no Docker engine runs here`,
        next: `${START}; where it is not installed: https://docs.docker.com/engine/install/`,
        details,
        cause,
      });
    case 'ECONNREFUSED':
      return new HoldfastError('engine_unavailable', what, {
        why: `nothing listens on ${socketPath}: the Docker engine has stopped`,
        next: START,
        details,
        cause,
      });
    case 'EACCES':
    case 'EPERM':
      return new HoldfastError('engine_unavailable', what, {
        why: `your user may not open ${socketPath}`,
        next: 'add it to the docker group: `sudo usermod -aG docker "$USER"`, then log in again',
        details,
        cause,
      });
    default:
      return new HoldfastError('engine_unavailable', what, {
        why: `the Docker engine broke off the conversation (${cause instanceof Error ? cause.message : String(cause)})`,
        next: 'see whether it runs: `docker info`; its log: `sudo journalctl -u docker`',
        details,
        cause,
      });
  }
}

export function engineTimedOut(what: string, socketPath: string, timeoutMs: number): HoldfastError {
  return new HoldfastError('engine_unavailable', what, {
    why: `the Docker engine at ${socketPath} did not answer within ${timeoutMs / 1000} s`,
    next: 'see whether it hangs: `docker info`; restart it with `sudo systemctl restart docker`',
    details: { endpoint: `unix://${socketPath}`, timeoutMs },
  });
}

/** Converts any thrown value to an error that may leave the driver. */
export function toHoldfastError(error: unknown, what: string): HoldfastError {
  if (error instanceof HoldfastError) return error;
  if (error instanceof EngineRefusal) {
    return new HoldfastError('engine_error', what, {
      why: error.reason,
      next: "try again; the engine's log says more: `sudo journalctl -u docker`",
      details: { status: error.status },
      cause: error,
    });
  }
  return HoldfastError.from(error, what);
}
