/** What one message may be, the same on every channel. Larger things are a sequence of messages, so that the reader sets the pace. */
export const FRAME_LIMITS = {
  /** Bytes of one line of JSON, without its newline. */
  lineBytes: 2 ** 20,
  /** Raw bytes behind one line. */
  payloadBytes: 4 * 2 ** 20,
  /** How deep objects and arrays may nest. */
  depth: 64,
} as const;

/** What one peer keeps for the other side before it says no. Sizes in bytes. */
export interface PeerLimits {
  /** Requests of the other side that may run here at a time; one more is answered with `overloaded`. */
  readonly incomingRequests: number;
  /** Bytes that those requests may hold together (lines and payloads); one more is answered with `overloaded`. */
  readonly incomingBytes: number;
  /** Calls of ours that may wait for an answer; one more fails with `overloaded`. */
  readonly outgoingCalls: number;
  /** Answers that the other side has not read yet; above it no more of its messages are read. */
  readonly unreadResponses: number;
  /** Unread answers above which an answer of more than 4 KiB is replaced by `overloaded`. */
  readonly unreadPayloads: number;
  /** Everything queued for the other side; a notification beyond it closes the connection with `overloaded`. */
  readonly unreadNotifications: number;
  /** Queue above which progress is left out: the next one says more. */
  readonly unreadProgress: number;
  /** How long the last words may take to leave before the connection is cut, ms. */
  readonly lingerMs: number;
}

export const PEER_LIMITS: PeerLimits = {
  incomingRequests: 1000,
  incomingBytes: 64 * 2 ** 20,
  outgoingCalls: 1000,
  unreadResponses: 8 * 2 ** 20,
  unreadPayloads: 64 * 2 ** 20,
  unreadNotifications: 16 * 2 ** 20,
  unreadProgress: 2 ** 20,
  lingerMs: 1000,
};
