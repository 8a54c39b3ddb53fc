import { z } from 'zod';
import { RuleOriginSchema } from '../protocol/egress.ts';
import type { HandlersOf, RequestMap } from './link.ts';

/**
 * What the late views of the session page and the extension say to each other, beside `messages.ts`. Both sides parse what
 * they receive, and a message without a handler does not compile.
 */

const nothing = z.object({});

/** Rules, hosts and credentials that the page shows of each. */
export const MAX_RECORD_ROWS = 500;
const count = z.number().int().nonnegative();
const text = z.string().max(5000);

/** What a session may do, and what it did as its manifest says. */
export const SessionRecordSchema = z.object({
  rules: z
    .array(
      z.object({
        host: text,
        effect: z.enum(['allow', 'deny']),
        from: RuleOriginSchema,
        isUnread: z.boolean(),
      }),
    )
    .max(MAX_RECORD_ROWS),
  credentials: z.array(z.object({ name: text, host: text })).max(MAX_RECORD_ROWS),
  /** `why`: what is wrong with the signature; null for nothing. */
  signature: z.object({ keyId: text, why: z.string().nullable() }),
  madeAt: text.nullable(),
  /** The manifest in words. */
  facts: z.array(z.object({ label: text, value: text })).max(50),
  hosts: z
    .array(z.object({ host: text, port: z.number().int(), allowed: count, denied: count, failed: count }))
    .max(MAX_RECORD_ROWS),
});
export type SessionRecord = z.infer<typeof SessionRecordSchema>;

/** page → extension. Each has a result, or fails with the sentence of an error. */
export const LATE_REQUESTS = {
  record: { params: nothing, result: SessionRecordSchema },
  /** Puts a manifest of the session as it is now on the clipboard, signed. */
  copyManifest: { params: nothing, result: nothing },
} as const satisfies RequestMap;
export type LateRequests = typeof LATE_REQUESTS;
export type LateRequestName = keyof LateRequests;

/** The handlers of the extension: one for each request. */
export type LateRequestHandlers = HandlersOf<LateRequests>;
