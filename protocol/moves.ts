import { z } from 'zod';
import { KeyIdSchema } from './bundles.ts';
import { SessionNameSchema, SessionSchema, TimeSchema } from './entities.ts';
import { HomeIdSchema, SessionIdSchema, SessionRefSchema } from './ids.ts';
import { EnvelopeSchema } from './manifest.ts';
import { MoveIdSchema, MovePlaceSchema } from './move-state.ts';
import { ProfileNameSchema } from './profile.ts';

export const MOVE_TYPE = 'urn:holdfast:move:1';
/** Characters of a public key in PEM. */
const publicKey = z.string().max(2000);
const hash = z.string().regex(/^[0-9a-f]{64}$/);

/**
 * What the two homes of a move sign, in this order. `offer`: the source holds the session for one target. `acceptance`: the target has
 * all of it, checked and held. `receipt`: the source has let go of it. `activation`: the session lives at the target. `withdrawal`: the
 * source keeps it; signed only before a receipt, and then there is never one.
 */
export const MOVE_STEPS = ['offer', 'acceptance', 'receipt', 'activation', 'withdrawal'] as const;
export type MoveStep = (typeof MOVE_STEPS)[number];

export const MovePredicateSchema = z.strictObject({
  step: z.enum(MOVE_STEPS),
  move: MoveIdSchema,
  /** ms since 1970. */
  at: z.number().int().nonnegative(),
  from: z.strictObject({ home: HomeIdSchema, session: SessionIdSchema }),
  /** `key`: the id of its key. `session`: null until the target has one. */
  to: z.strictObject({ home: HomeIdSchema, key: KeyIdSchema, session: SessionIdSchema.nullable() }),
  /** The SHA-256 of the bundle; null until there is one. */
  bundle: hash.nullable(),
});
export type MovePredicate = z.infer<typeof MovePredicateSchema>;

/** An in-toto statement; its subject is the SHA-256 of the move's id. */
export const MoveStatementSchema = z.strictObject({
  _type: z.literal('https://in-toto.io/Statement/v1'),
  subject: z
    .array(z.strictObject({ name: z.literal('move'), digest: z.strictObject({ sha256: hash }) }))
    .length(1),
  predicateType: z.literal(MOVE_TYPE),
  predicate: MovePredicateSchema,
});

/** A move as its source has it. */
export const DepartureSchema = z.object({
  move: MoveIdSchema,
  sessionId: SessionIdSchema,
  name: z.string(),
  profile: z.string(),
  /** `leaving`: the session is held, and `move/abort` gives it back. `released`, `finished`: it lives at the target. */
  state: z.enum(['leaving', 'released', 'finished']),
  since: TimeSchema,
  to: MovePlaceSchema,
  /** Of this home. */
  publicKey,
  offer: EnvelopeSchema,
  receipt: EnvelopeSchema.nullable(),
});
export type Departure = z.infer<typeof DepartureSchema>;

/** A move as its target has it. */
export const ArrivalSchema = z.object({
  /** `unknown`: nothing of it is here. `discarded`: it was here and is deleted. */
  state: z.enum(['unknown', 'arriving', 'active', 'discarded']),
  /** Null also for a session that was deleted since. */
  session: SessionSchema.nullable(),
  acceptance: EnvelopeSchema.nullable(),
  activation: EnvelopeSchema.nullable(),
});
export type Arrival = z.infer<typeof ArrivalSchema>;

/** An upload or a download of a bundle, as `bundle/*` has it. */
const bundle = z.string().regex(/^[0-9a-f]{32}$/);
const held = z.object({ move: MoveIdSchema });

/**
 * client → supervisor. Part of METHODS. A client moves a session by calling the two supervisors in turn; each call may be repeated,
 * by any client, and goes on where the move is.
 */
export const MOVE_METHODS = {
  /** Who this home is, for the other one. */
  'move/identity': {
    params: z.object({}),
    result: z.object({ home: HomeIdSchema, publicKey, keyId: KeyIdSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * At the source: stops the session, creates a snapshot and holds the session for the target: nothing can use or change it. Returns the
   * move that is under way, or that has ended, if there is one to this target. Errors: `conflict` while something runs in the session, or
   * for a move to another target; `not_supported` for a session without a persistent workspace.
   */
  'move/begin': {
    params: z.object({
      session: SessionRefSchema,
      to: MovePlaceSchema.extend({ publicKey }),
    }),
    result: DepartureSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /**
   * At the target: how far the move is here. If nothing is here, checks that the session could be made: `not_found` for the profile,
   * `already_exists` for the name.
   */
  'move/status': {
    params: z.object({
      offer: EnvelopeSchema,
      publicKey,
      profile: ProfileNameSchema,
      name: SessionNameSchema,
    }),
    result: ArrivalSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** At the source: begins to export the session; `bundle/read` gives the bytes. May be repeated until the session is released. */
  'move/export': {
    params: held,
    result: z.object({ bundle }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /**
   * At the target: begins to import the session that the offer names; `bundle/append` and `bundle/commit` do the rest. The session can
   * then be seen, and nothing can use it before `move/activate`. `from`: how the client calls the source. Errors: those of `move/status`;
   * `already_exists` once it is here.
   */
  'move/import': {
    params: z.object({
      offer: EnvelopeSchema,
      publicKey,
      from: MovePlaceSchema.shape.name,
      profile: ProfileNameSchema,
      name: SessionNameSchema,
    }),
    result: z.object({ bundle }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** At the source: lets go of the session, for good, and returns the receipt. */
  'move/release': {
    params: held.extend({ acceptance: EnvelopeSchema }),
    result: DepartureSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** At the target: the session can be used from here on. */
  'move/activate': {
    params: held.extend({ receipt: EnvelopeSchema }),
    result: ArrivalSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** At the source: deletes the session's workspace. Its last snapshot stays as that of a deleted session does. */
  'move/finish': {
    params: held.extend({ activation: EnvelopeSchema }),
    result: DepartureSchema,
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** At the source: gives the session back. Errors: `conflict` once it was released, `not_found` if it is not moving. */
  'move/abort': {
    params: z.object({ session: SessionRefSchema }),
    result: z.object({ move: MoveIdSchema, to: MovePlaceSchema, withdrawal: EnvelopeSchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** At the target: deletes what has arrived. `discarded`: false if nothing had. */
  'move/discard': {
    params: held.extend({ withdrawal: EnvelopeSchema }),
    result: z.object({ discarded: z.boolean() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
