import type { PERMISSION_METHODS } from '../../../protocol/permissions.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { Permissions } from '../../agents/permissions.ts';
import type { ClientNames } from '../client-names.ts';

export interface PermissionHandlersOptions {
  readonly permissions: Permissions;
  readonly clients: ClientNames;
  /** The id of the session that is meant. Errors: `not_found`, `ambiguous_name`. */
  readonly sessionId: (reference: string) => string;
}

/** The answers to `permission/*`. */
export function permissionHandlers<P extends object>({
  permissions,
  clients,
  sessionId,
}: PermissionHandlersOptions): Handlers<typeof PERMISSION_METHODS, P> {
  return {
    'permission/list': ({ session, all = false, limit, after }) =>
      permissions.list({
        sessionId: session === undefined ? null : sessionId(session),
        isWaiting: !all,
        limit,
        after,
      }),
    'permission/answer': ({ permission, answer, opId }, { peer }) => ({
      permission: permissions.answer(permission, answer, clients.of(peer), opId),
    }),
  };
}
