import type { Duplex } from 'node:stream';
import { z } from 'zod';
import { ErrorDataSchema, errorFromWire } from '../../protocol/error-data.ts';
import { HoldfastError } from '../../protocol/errors.ts';

/**
 * What a client and the connector say to each other on the connector's socket: one JSON object per line. After `ready` the
 * connection carries only the bytes of the stream that was asked for.
 */
const MAX_LINE_BYTES = 64 * 1024;
const NEWLINE = 0x0a;

export const WantSchema = z.discriminatedUnion('want', [
  z.object({
    want: z.literal('stream'),
    path: z.enum(['/supervisor', '/images/missing', '/images/load', '/images/build']),
    start: z.enum(['auto', 'never']),
    /** The client can ask a person. */
    canAsk: z.boolean(),
  }),
  /** A question of ssh, from the program that ssh runs to ask it. */
  z.object({ want: z.literal('ask'), text: z.string().max(8000), isNotice: z.boolean() }),
  /** What is known about the machine, once it is connected. */
  z.object({ want: z.literal('survey'), canAsk: z.boolean() }),
  z.object({ want: z.literal('stop') }),
]);
export type Want = z.infer<typeof WantSchema>;

export const AnswerSchema = z.object({
  answer: z.object({ id: z.number().int(), text: z.string().max(8000).nullable() }),
});

const FactsSchema = z.record(z.string(), z.json());
export const ReplySchema = z.union([
  z.object({ stage: z.string() }),
  z.object({ question: z.object({ id: z.number().int(), text: z.string(), isSecret: z.boolean() }) }),
  z.object({ ready: z.literal(true) }),
  /** No supervisor runs there. */
  z.object({ none: z.literal(true) }),
  z.object({ survey: FactsSchema }),
  z.object({ text: z.string().nullable() }),
  z.object({ error: z.object({ message: z.string(), data: ErrorDataSchema }) }),
]);
export type Reply = z.infer<typeof ReplySchema>;

export function writeMessage(stream: Duplex, message: object): void {
  if (!stream.destroyed) stream.write(`${JSON.stringify(message)}\n`);
}

export function errorReply(cause: unknown): Reply {
  const error = HoldfastError.from(cause);
  return { error: { message: error.message, data: error.toData() } };
}

export function errorOf(reply: { readonly message: string; readonly data: unknown }): HoldfastError {
  return errorFromWire(reply.message, reply.data);
}

/** Reads lines from a stream until `release`, which leaves what follows to others. */
export class MessageReader {
  readonly #stream: Duplex;
  #rest: Buffer = Buffer.alloc(0);
  #waiting: (() => void) | undefined;
  readonly #wake = (): void => this.#waiting?.();

  constructor(stream: Duplex) {
    this.#stream = stream;
    for (const event of ['readable', 'end', 'close', 'error']) stream.on(event, this.#wake);
  }

  /** The next message; null at the end. Errors: `protocol_error`. */
  async next<Schema extends z.ZodType>(schema: Schema): Promise<z.infer<Schema> | null> {
    for (;;) {
      const end = this.#rest.indexOf(NEWLINE);
      if (end !== -1) {
        const line = this.#rest.toString('utf8', 0, end);
        this.#rest = this.#rest.subarray(end + 1);
        return parse(schema, line);
      }
      if (this.#rest.length > MAX_LINE_BYTES) throw new HoldfastError('protocol_error', 'A line is too long');
      const chunk: unknown = this.#stream.read();
      if (Buffer.isBuffer(chunk)) {
        this.#rest = Buffer.concat([this.#rest, chunk]);
        continue;
      }
      if (this.#stream.readableEnded || this.#stream.destroyed) return null;
      await new Promise<void>((resolve) => (this.#waiting = resolve));
    }
  }

  release(): void {
    for (const event of ['readable', 'end', 'close', 'error']) this.#stream.off(event, this.#wake);
    if (this.#rest.length > 0) this.#stream.unshift(this.#rest);
  }
}

function parse<Schema extends z.ZodType>(schema: Schema, line: string): z.infer<Schema> {
  try {
    return schema.parse(JSON.parse(line));
  } catch (cause) {
    throw new HoldfastError('protocol_error', 'A message between client and connector cannot be read', {
      why: 'they are of different versions, or the line was cut',
      cause,
    });
  }
}
