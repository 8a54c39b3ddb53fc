import { z } from 'zod';
import { PermissionIdSchema } from './agent-events.ts';
import { EngineStatusSchema, SessionSchema, TimeSchema, TurnStatusSchema } from './entities.ts';
import { ProfileNameSchema } from './profile.ts';
import { SessionIdSchema, TurnIdSchema } from './ids.ts';
import { leaveOutNewer } from './newer-values.ts';

/**
 * The feed of the host: everything that a list of sessions shows, and what a person is notified of. States (`session`,
 * `session-removed`, `engine`, `profile`) are sent as they are when they are sent: a slow reader gets fewer of them and
 * never an outdated last one. Occurrences (`turn`, `permission`, `denial`) are for notices: the newest 1,000 are kept
 * for readers that are behind, and the history of the session has all of them.
 */

const count = z.number().int().nonnegative();

/** A position in the feed of one run of the supervisor. */
export const HostPositionSchema = z.object({
  /** Counts the runs of supervisors of this home. Positions of another run are unknown. */
  epoch: count,
  seq: count,
});
export type HostPosition = z.infer<typeof HostPositionSchema>;

export const HostChangeSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('session'), session: SessionSchema }),
  /** The session was deleted. */
  z.object({ kind: z.literal('session-removed'), sessionId: SessionIdSchema }),
  z.object({ kind: z.literal('engine'), engine: EngineStatusSchema }),
  /** A version of the profile was deployed; `version` is null after an undeploy. */
  z.object({ kind: z.literal('profile'), profile: ProfileNameSchema, version: count.nullable() }),
  z.object({
    kind: z.literal('turn'),
    sessionId: SessionIdSchema,
    turnId: TurnIdSchema,
    status: TurnStatusSchema,
    at: TimeSchema,
  }),
  /** An agent asked a person for permission, or somebody has answered. `permission/list` has the permissions. */
  z.object({
    kind: z.literal('permission'),
    sessionId: SessionIdSchema,
    turnId: TurnIdSchema,
    permissionId: PermissionIdSchema,
    state: z.enum(['asked', 'answered']),
    /** What the agent wants to do, in its own words; empty for an answer. */
    title: z.string(),
    at: TimeSchema,
  }),
  /** A connection out of a sandbox was denied. `allow` is the rule that would have allowed it; null for none. */
  z.object({
    kind: z.literal('denial'),
    sessionId: SessionIdSchema,
    host: z.string(),
    port: count,
    allow: z.string().nullable(),
    at: TimeSchema,
  }),
]);
export type HostChange = z.infer<typeof HostChangeSchema>;

export const HOST_METHODS = {
  /**
   * Starts `host/changed` notifications on this connection, at the client's pace; replaces an earlier subscription of
   * it. `after` continues at a position. Without one, or where the supervisor does not know it any more, all states
   * are sent first. The result is the position of now: a client that has received it knows every change up to here.
   */
  'host/subscribe': {
    params: z.object({ after: HostPositionSchema.optional() }),
    result: HostPositionSchema,
    repeat: 'never',
    whenDamaged: 'refused',
  },
  'host/unsubscribe': {
    params: z.object({}),
    result: z.object({}),
    repeat: 'never',
    whenDamaged: 'refused',
  },
} as const;

export const HOST_NOTIFICATIONS = {
  'host/changed': {
    params: z.object({
      epoch: count,
      /** The position after these changes. To be kept only when `isComplete`. */
      seq: count,
      /** What the client knew is outdated: the states from here on replace all of it. */
      isSnapshot: z.boolean(),
      /** False while further parts of a snapshot follow. */
      isComplete: z.boolean(),
      changes: leaveOutNewer(z.array(HostChangeSchema)),
    }),
  },
} as const;
