/** Limits of one message, the same on every channel. Larger data is a sequence of messages, so that the reader sets the pace. */
export const FRAME_LIMITS = {
  /** Bytes of one line of JSON, without its newline. */
  lineBytes: 2 ** 20,
  /** Raw bytes after one line. */
  payloadBytes: 4 * 2 ** 20,
  /** Maximum nesting of objects and arrays. */
  depth: 64,
} as const;

/** What one peer buffers for the other before it refuses more. Sizes in bytes. */
export interface PeerLimits {
  /** Maximum concurrent requests of the other side. One more gets `overloaded`. */
  readonly incomingRequests: number;
  /** Maximum bytes of those requests together (lines and payloads). One more gets `overloaded`. */
  readonly incomingBytes: number;
  /** Maximum pending calls of ours. One more fails with `overloaded`. */
  readonly outgoingCalls: number;
  /** Unread responses above which no more messages of the other side are read. */
  readonly unreadResponses: number;
  /** Unread responses above which a response of more than 4 KiB is replaced by `overloaded`. */
  readonly unreadPayloads: number;
  /** Unread bytes above which a notification closes the connection with `overloaded`. */
  readonly unreadNotifications: number;
  /** Unread bytes above which progress notifications are dropped. */
  readonly unreadProgress: number;
  /** How long the final messages may take before the connection is destroyed, ms. */
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
