import type { ErrorData } from './error-data.ts';

export type { ErrorData };

/**
 * All error codes, as stable words. The number is the JSON-RPC error code on the wire: a standard one where one fits,
 * otherwise ours, which count down from -33001.
 */
export const ERROR_CODES = {
  protocol_error: -32700,
  invalid_request: -32600,
  method_not_found: -32601,
  invalid_params: -32602,
  internal: -32603,
  cancelled: -32800,

  // The connection between programs
  connection_closed: -33001,
  version_mismatch: -33002,
  overloaded: -33003,
  shutting_down: -33004,

  // Names and states
  not_found: -33010,
  already_exists: -33011,
  conflict: -33012,
  ambiguous_name: -33013,
  invalid_state: -33014,
  confirmation_required: -33015,
  not_supported: -33016,
  permission_denied: -33017,
  timeout: -33018,

  // The Holdfast home
  home_locked: -33030,
  home_newer: -33031,
  home_damaged: -33032,
  no_space: -33033,
  path_too_long: -33034,

  // The engine and its containers
  engine_unavailable: -33040,
  engine_error: -33041,
  image_not_found: -33042,
  image_pull_failed: -33043,
  sandbox_failed: -33044,
  sandbox_lost: -33045,

  // Profiles and turns
  profile_invalid: -33060,
  agent_failed: -33061,
  worker_crashed: -33062,
  output_limit: -33063,
  storage_limit: -33064,
  interrupted: -33065,
  setup_failed: -33066,

  // Files of a workspace: one to one with VS Code's FileSystemError
  file_not_found: -33080,
  file_exists: -33081,
  file_not_a_directory: -33082,
  file_is_a_directory: -33083,
  directory_not_empty: -33084,
  file_too_large: -33085,
  file_not_regular: -33086,
  file_unavailable: -33087,
  read_only: -33088,

  // Snapshots
  snapshot_damaged: -33100,
  /** The profile requires a complete snapshot before each turn, and creating it failed. */
  snapshot_required: -33101,
} as const;

export type ErrorCode = keyof typeof ERROR_CODES;

export interface HoldfastErrorOptions {
  readonly why?: string | undefined;
  readonly next?: string | undefined;
  readonly details?: ErrorData['details'];
  readonly cause?: unknown;
}

/**
 * The only error class that crosses a process boundary. `message` says what failed, `why` the cause, and `next` what the
 * user can do. `details` is data for programs.
 */
export class HoldfastError extends Error {
  override readonly name = 'HoldfastError';
  readonly code: ErrorCode;
  readonly why: string | undefined;
  readonly next: string | undefined;
  readonly details: ErrorData['details'];

  constructor(code: ErrorCode, what: string, options: HoldfastErrorOptions = {}) {
    super(what, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.why = options.why;
    this.next = options.next;
    this.details = options.details;
  }

  get rpcCode(): number {
    return ERROR_CODES[this.code];
  }

  /** `message; why; next` on one line, as the CLI prints it after `error <code>: `. */
  get sentence(): string {
    return [this.message, this.why, this.next].filter((part) => part !== undefined && part !== '').join('; ');
  }

  toData(): ErrorData {
    return {
      code: this.code,
      ...(this.why === undefined ? {} : { why: this.why }),
      ...(this.next === undefined ? {} : { next: this.next }),
      ...(this.details === undefined ? {} : { details: this.details }),
    };
  }

  /** Converts any thrown value to a HoldfastError. Other errors become `internal` and the `cause`. */
  static from(error: unknown, what = 'The request failed'): HoldfastError {
    if (error instanceof HoldfastError) return error;
    const why = error instanceof Error ? error.message : String(error);
    return new HoldfastError('internal', what, { why, cause: error });
  }
}
