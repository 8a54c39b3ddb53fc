import type { POLICY_METHODS } from '../../../protocol/egress.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { Egress } from '../../egress/egress.ts';
import type { Policies } from '../../egress/policies.ts';

export interface PolicyHandlersOptions {
  readonly policies: Policies;
  readonly egress: Egress;
  /** Resolves the session that a client names. Errors: `not_found`, `ambiguous_name`. */
  readonly sessionId: (reference: string) => string;
}

/** Handlers of `policy/*`. */
export function policyHandlers<P>({
  policies,
  egress,
  sessionId,
}: PolicyHandlersOptions): Handlers<typeof POLICY_METHODS, P> {
  return {
    'policy/show': ({ session }) => ({ policy: policies.describe(sessionId(session)) }),
    'policy/allow': ({ session, host, scope, tcp = false, ech }) => {
      const id = sessionId(session);
      policies.setRule(id, 'allow', host, scope ?? 'session', { tcp, ech: ech === 'allow' });
      egress.applyRules();
      return { policy: policies.describe(id) };
    },
    'policy/deny': ({ session, host, scope }) => {
      const id = sessionId(session);
      policies.setRule(id, 'deny', host, scope ?? 'session');
      egress.applyRules();
      return { policy: policies.describe(id) };
    },
  };
}
