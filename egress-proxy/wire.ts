import { z } from 'zod';
import { EgressReasonSchema } from '../protocol/egress.ts';

/**
 * What the supervisor and the process that reads what sandboxes send say to each other, in messages of a `MessageChannel`.
 * The supervisor opens every connection; its first message says what the connection is for. What the process sends is
 * checked: it may have been taken over.
 */
export const PROXY_PROTOCOL = 1;

/** Where its things are in its container. */
export const IN_PROXY = { runtime: '/opt/holdfast', control: '/ctl', socketName: 'sidecar.sock' } as const;

/** How long the process waits for a request's head, and for the first words in a tunnel. */
export const HEAD_MS = 10_000;
export const OPENING_MS = 10_000;
/** Maximum size of a head, of a request or an answer. */
export const HEAD_BYTES = 16 * 1024;
/** How long a client may take to read the final response before it is cut off. */
export const FINAL_RESPONSE_MS = 5000;

/** The first message of a connection. */
export const PurposeSchema = z.discriminatedUnion('for', [
  /** Bytes of a connection of a sandbox. */
  z.object({ for: z.literal('client'), id: z.int(), session: z.string() }),
  /** Bytes of the server that the client with this id asked for. */
  z.object({ for: z.literal('server'), id: z.int() }),
  /** Is it alive? */
  z.object({ for: z.literal('pulse') }),
]);
export type Purpose = z.infer<typeof PurposeSchema>;

const port = z.int().min(0).max(65_535);
/** Canonical. */
const host = z.string().max(255);

/** An answer to `dial` or `redial`. */
export const AnswerSchema = z.discriminatedUnion('answer', [
  /** To CONNECT: the client has its 200. To a request: a connection for the server follows. */
  z.object({ answer: z.literal('dialled'), tcp: z.boolean(), ech: z.boolean() }),
  z.object({
    answer: z.literal('refused'),
    reason: EgressReasonSchema,
    why: z.string(),
    host,
    port,
    allow: z.string().nullable(),
  }),
  /** Nobody waits any more. */
  z.object({ answer: z.literal('nobody') }),
]);
export type Answer = z.infer<typeof AnswerSchema>;

/** HTTP's methods are tokens; this one goes into the history. */
const method = z.string().regex(/^[A-Z-]{1,32}$/);

/** What the process says about a client. */
export const RequestSchema = z.discriminatedUnion('say', [
  /** Decide, and dial. At most once. */
  z.object({ say: z.literal('dial'), method, host, port }),
  /** The tunnel has one plain request: dial its server again for that. At most once. */
  z.object({ say: z.literal('redial'), method }),
  /** The bytes of the client from this one on are for its server. The last message. */
  z.object({ say: z.literal('carry'), from: z.int().min(0) }),
  /** It is answered without a server, and reported. */
  z.object({
    say: z.literal('denied'),
    method: method.or(z.literal('')),
    reason: z.enum(['bad_request', 'placeholder']),
  }),
  /** What the tunnel carries is refused, and reported. */
  z.object({
    say: z.literal('misused'),
    reason: z.enum(['not_tls', 'no_sni', 'sni_mismatch', 'ech']),
    serverName: host.optional(),
  }),
  /** The connection is broken on purpose; one that breaks without it was lost with the process. */
  z.object({ say: z.literal('reset') }),
]);
export type ProxyRequest = z.infer<typeof RequestSchema>;
