import { z } from 'zod';
import { HomeIdSchema } from './ids.ts';

export const MoveIdSchema = z.string().regex(/^mov-[a-z2-7]{16}$/);

/** The other home of a move. `name`: how the client that began it calls that host, for people. */
export const MovePlaceSchema = z.object({
  home: HomeIdSchema,
  name: z
    .string()
    .min(1)
    .max(100)
    .regex(/^[^\p{C}\p{Zl}\p{Zp}]+$/u, 'no control characters'),
});
export type MovePlace = z.infer<typeof MovePlaceSchema>;

/**
 * Why a session cannot be used: it is on its way between two homes. `leaving`: it can still be kept here. `left`: it lives there.
 * `arriving`: it lives there until the move goes on.
 */
export const SessionMoveSchema = z.object({
  state: z.enum(['leaving', 'left', 'arriving']),
  with: MovePlaceSchema,
});
export type SessionMove = z.infer<typeof SessionMoveSchema>;
