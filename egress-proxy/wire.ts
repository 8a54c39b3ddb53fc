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

/** Maximum size of the head of a request with a credential, or of its answer, and of a message that has one. */
export const CREDENTIAL_HEAD_BYTES = 64 * 1024;
export const CREDENTIAL_HEADERS = 200;
export const CREDENTIAL_MESSAGE_BYTES = 256 * 1024;

/** The first message of a connection. */
export const PurposeSchema = z.discriminatedUnion('for', [
  /** Bytes of a connection of a sandbox. */
  z.object({ for: z.literal('client'), id: z.int(), session: z.string() }),
  /** Bytes of the server that the client with this id asked for. */
  z.object({ for: z.literal('server'), id: z.int() }),
  /** Bytes of a connection of a sandbox to the port of a credential. */
  z.object({ for: z.literal('credential'), id: z.int() }),
  /** One request of the connection with this id: its body, and the answer. */
  z.object({ for: z.literal('exchange'), id: z.int(), exchange: z.int() }),
  /** Is it alive? */
  z.object({ for: z.literal('pulse') }),
]);
export type Purpose = z.infer<typeof PurposeSchema>;

const port = z.int().min(0).max(65_535);
/** Canonical. */
const host = z.string().max(255);

/** An answer to `dial` or `request`. */
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
  /** The tunnel has one plain request for its server. At most once. */
  z.object({ say: z.literal('request'), method }),
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

const headers = z.array(z.string()).max(2 * CREDENTIAL_HEADERS);
const refusedRequest = {
  status: z.int().min(400).max(599),
  reason: EgressReasonSchema,
  why: z.string(),
};

/** What the process says about a connection to the port of a credential. Requests are numbered from 1. */
export const CredentialSaySchema = z.discriminatedUnion('say', [
  /** The head of a request, name and value in turn. Its body follows on a connection of its own, if it may. */
  z.object({
    say: z.literal('request'),
    exchange: z.int().min(1),
    method: z.string().max(32),
    path: z.string().max(CREDENTIAL_HEAD_BYTES),
    headers,
  }),
  /** It is answered by the process, and reported. */
  z.object({ say: z.literal('denied') }),
  /** The connection is broken on purpose. */
  z.object({ say: z.literal('reset') }),
]);
export type CredentialSay = z.infer<typeof CredentialSaySchema>;

/** An answer to `request`, for one that may not go on. For others a connection follows. */
export const CredentialRefusalSchema = z.object({
  answer: z.literal('refused'),
  exchange: z.int(),
  ...refusedRequest,
});
export type CredentialRefusal = z.infer<typeof CredentialRefusalSchema>;

/** The first message of the supervisor on the connection of an exchange. With `head`, the body follows it. */
export const ExchangeAnswerSchema = z.discriminatedUnion('answer', [
  z.object({ answer: z.literal('head'), status: z.int().min(200).max(599), phrase: z.string(), headers }),
  z.object({ answer: z.literal('refused'), ...refusedRequest }),
]);
export type ExchangeAnswer = z.infer<typeof ExchangeAnswerSchema>;
