import { z } from 'zod';

/** How the pages and the extension speak: requests of a page with their results, and messages to it. Each page has its own maps. */

/** page → extension, by name. Each has a result, or fails with the sentence of an error. */
export type RequestMap = Readonly<Record<string, { readonly params: z.ZodType; readonly result: z.ZodType }>>;
/** extension → page, by name. */
export type MessageMap = Readonly<Record<string, z.ZodType>>;

export type NameOf<M extends object> = keyof M & string;
/** The handlers of the extension: one for each request. */
export type HandlersOf<R extends RequestMap> = {
  readonly [N in keyof R]: (params: z.output<R[N]['params']>) => Promise<z.input<R[N]['result']>>;
};
/** The handlers of the page: one for each message. */
export type ListenersOf<M extends MessageMap> = {
  readonly [N in keyof M]: (value: z.output<M[N]>) => void;
};

export type RequestResult<R extends RequestMap, N extends NameOf<R>> = z.output<R[N]['result']>;

export const EnvelopeToPageSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('message'), name: z.string(), value: z.unknown() }),
  z.object({ kind: z.literal('result'), id: z.number().int(), value: z.unknown() }),
  z.object({ kind: z.literal('error'), id: z.number().int(), sentence: z.string() }),
]);
export const EnvelopeToExtensionSchema = z.object({
  id: z.number().int(),
  name: z.string(),
  params: z.unknown(),
});
