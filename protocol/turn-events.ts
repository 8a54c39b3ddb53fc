import { z } from 'zod';
import { AttachmentsSchema } from './attachments.ts';
import { ContentSchema } from './contents.ts';
import { DispatchCaseSchema, TurnIdSchema, TurnStatusSchema } from './entities.ts';
import { ErrorDataSchema } from './error-data.ts';
import { eventType } from './event-type.ts';
import { TurnKindSchema } from './turn-kinds.ts';

/** The first output of a turn (all streams together), up to this size, is stored in the database, and the rest in a file. */
export const INLINE_OUTPUT_BYTES = 32 * 1024;

const bytes = z.number().int().nonnegative();
const ms = z.number().nonnegative().nullable();

export const TurnErrorSchema = z.object({
  message: z.string(),
  data: ErrorDataSchema,
  traceback: z.string().optional(),
});
export type TurnError = z.infer<typeof TurnErrorSchema>;

export const OUTPUT_STREAMS = ['stdout', 'stderr', 'result'] as const;
export const OutputStreamSchema = z.enum(OUTPUT_STREAMS);
export type OutputStream = z.infer<typeof OutputStreamSchema>;

/** The life of a turn. Part of `EVENT_TYPES`. */
export const TURN_EVENTS = {
  'turn.queued': eventType(
    z.object({
      turnId: TurnIdSchema,
      kind: TurnKindSchema,
      inputBytes: bytes,
      /** The beginning of the input, in events of earlier versions only. */
      preview: z.string().optional(),
      /** The whole input. Null in events of earlier versions. */
      content: ContentSchema.nullable(),
      timeoutMs: z.number().int().positive(),
      attachments: AttachmentsSchema.optional(),
    }),
    { changes: 'turn', isInManifests: true },
  ),
  /** The input of a turn that still waits was replaced; the data is that of the new one. */
  'turn.edited': eventType(
    z.object({
      turnId: TurnIdSchema,
      inputBytes: bytes,
      /** As in `turn.queued`. */
      preview: z.string().optional(),
      content: ContentSchema,
      /** All that it has from now on. */
      attachments: AttachmentsSchema.optional(),
    }),
    { changes: 'turn', isInManifests: true },
  ),
  'turn.started': eventType(
    z.object({
      turnId: TurnIdSchema,
      case: DispatchCaseSchema,
      reused: z.boolean(),
      generation: z.number().int(),
      codeVersion: z.number().int().nullable(),
      queuedMs: ms,
      dispatchMs: ms,
    }),
    { changes: 'turn', line: (data) => `${data.turnId}  ${data.case}` },
  ),
  /** The sandbox ended before the turn had started in it. The turn starts again in the next sandbox. */
  'turn.restarted': eventType(
    z.object({
      turnId: TurnIdSchema,
      generation: z.number().int(),
      /** How the next sandbox was obtained; replaces the value of `turn.started`. Older supervisors omit it. */
      case: DispatchCaseSchema.optional(),
      reused: z.boolean().optional(),
    }),
    { changes: 'turn', transcript: () => 'The sandbox was lost; the turn restarts in a new one' },
  ),
  /** The worker that runs the turn. */
  'turn.worker': eventType(
    z.object({
      turnId: TurnIdSchema,
      workerId: z.string(),
      workerReused: z.boolean(),
      workerStartMs: ms,
    }),
    { changes: 'turn' },
  ),
  'turn.output': eventType(
    z.object({
      turnId: TurnIdSchema,
      stream: OutputStreamSchema,
      offset: bytes,
      bytes,
      /** Null in events of earlier versions, which had the output in one of the next three fields instead. */
      content: ContentSchema.nullable(),
      text: z.string().optional(),
      base64: z.string().optional(),
      /** A file, and the hash of its bytes. */
      artifact: z.string().optional(),
      sha256: z.string().optional(),
    }),
    { changes: 'turn', isStreamed: true },
  ),
  'turn.cancelling': eventType(z.object({ turnId: TurnIdSchema }), {
    changes: 'turn',
    transcript: () => 'Cancelling',
  }),
  'turn.ended': eventType(
    z.object({
      turnId: TurnIdSchema,
      status: TurnStatusSchema,
      exitCode: z.number().int().nullable(),
      error: TurnErrorSchema.nullable(),
      /** The handler's return value as JSON. Null without one, and in events of earlier versions. */
      content: ContentSchema.nullable(),
      /** The return value in events of earlier versions. */
      output: z.json().optional(),
      outputArtifact: z.boolean(),
      turnMs: ms,
      workerStartMs: ms,
      workerId: z.string().nullable(),
      workerReused: z.boolean().nullable(),
    }),
    { changes: 'turn', isInManifests: true },
  ),
} as const;
