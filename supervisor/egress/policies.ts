import {
  type EgressRule,
  HOST_MACHINE,
  parseHostPattern,
  type Policy,
  type PolicyRule,
  RULE_SCOPES,
  type RuleOrigin,
  type RuleScope,
} from '../../protocol/egress.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { EgressRules } from '../store/egress-rules.ts';
import type { Profiles } from '../store/profiles.ts';
import type { Sessions } from '../store/sessions.ts';
import { decide, type Rule, type Verdict } from './decide.ts';

/** Maximum number of rules of one session, of all origins: every connection checks all of them. */
const MOST_RULES = 2000;
const SHOWN: readonly RuleOrigin[] = [...RULE_SCOPES, 'file'];

export interface PoliciesOptions {
  readonly database: Database;
  readonly rules: EgressRules;
  readonly profiles: Profiles;
  readonly sessions: Sessions;
  readonly events: EventLog;
  /** ms since 1970. */
  readonly now: () => number;
}

/** What a rule carries in a tunnel besides HTTP and TLS that names its server. */
export interface RuleProtocols {
  readonly tcp?: boolean;
  readonly ech?: boolean;
}

/** A rule of what is no session. */
export interface SetupRule extends EgressRule {
  /** As in `Rule`. */
  readonly mayBePrivate?: true;
}

interface LoadedRule extends Rule {
  readonly shown: string;
  readonly addedAt: number | null;
}

/** A rule whose host is not parsed yet. */
type HostRule = Omit<LoadedRule, 'pattern' | 'shown'> & { readonly host: string };

/**
 * The rules of every session: those of its profile's file, and those that people added. Cached until something
 * changes them.
 */
export class Policies {
  readonly #options: PoliciesOptions;
  readonly #cache = new Map<string, { readonly key: string; readonly rules: readonly LoadedRule[] }>();
  /** Rules of setups that run, by their id. */
  readonly #declared = new Map<string, readonly LoadedRule[]>();
  /** Number of changes by people; invalidates the cache. */
  #changes = 0;

  constructor(options: PoliciesOptions) {
    this.#options = options;
  }

  /** The rules of what is no session, until `withdraw`: a setup, whose id is none of a session. People cannot change them. */
  declare(id: string, rules: readonly SetupRule[]): void {
    this.#declared.set(id, withPatterns(rules.map(fromFile)));
  }

  withdraw(id: string): void {
    this.#declared.delete(id);
  }

  /** Empty for a deleted session. */
  rulesOf(sessionId: string): readonly Rule[] {
    return this.#load(sessionId);
  }

  /** Whether any rule allows something: otherwise the sandbox has no egress at all. */
  allowsAnything(sessionId: string): boolean {
    return this.#load(sessionId).some(({ effect }) => effect === 'allow');
  }

  /** Ports of the supervisor's machine that the rules allow. */
  allowedHostPorts(sessionId: string): ReadonlySet<number> {
    const rules = this.#load(sessionId);
    const ports = rules.flatMap(({ effect, pattern: { host, wildcard, port } }) =>
      effect === 'allow' && host === HOST_MACHINE.name && !wildcard && port !== null ? [port] : [],
    );
    return new Set(ports.filter((port) => decide(rules, HOST_MACHINE.name, port).allowed));
  }

  /** Decides on a connection and uses up a one-time rule, durably, before anything is dialed. */
  decide(sessionId: string, host: string, port: number): Verdict {
    const verdict = decide(this.rulesOf(sessionId), host, port);
    if (!verdict.allowed || verdict.rule.from !== 'once' || verdict.rule.id === null) return verdict;
    const { rules } = this.#options;
    const used = rules.remove(verdict.rule.id);
    this.#changes += 1;
    return used ? verdict : decide(this.rulesOf(sessionId), host, port);
  }

  describe(sessionId: string): Policy {
    const { sessions } = this.#options;
    const row = sessions.get(sessionId);
    const rules = this.#load(sessionId);
    return {
      sessionId,
      profile: row?.profile ?? '',
      open: this.allowsAnything(sessionId),
      rules: SHOWN.flatMap((origin) =>
        rules
          .filter(({ from }) => from === origin)
          .map((rule): PolicyRule => ({
            host: rule.shown,
            effect: rule.effect,
            from: rule.from,
            quiet: rule.quiet ?? false,
            tcp: rule.tcp ?? false,
            ech: rule.ech ?? false,
            addedAt: rule.addedAt === null ? null : new Date(rule.addedAt).toISOString(),
          })),
      ),
    };
  }

  /** `host` is canonical. Errors: `invalid_params` for a one-time denial, `overloaded` for too many rules. */
  setRule(
    sessionId: string,
    effect: 'allow' | 'deny',
    host: string,
    scope: RuleScope,
    { tcp = false, ech = false }: RuleProtocols = {},
  ): void {
    const { database, rules, sessions, events, now } = this.#options;
    const row = sessions.get(sessionId);
    if (row === null) throw new HoldfastError('not_found', `There is no session ${sessionId}`);
    if (effect === 'deny' && scope === 'once') {
      throw new HoldfastError('invalid_params', `${host} cannot be denied once`, {
        why: 'a host that no rule allows is denied anyway',
        next: 'deny it for the session',
      });
    }
    if (this.#load(sessionId).length >= MOST_RULES) {
      throw new HoldfastError('overloaded', `${host} was not added`, {
        why: `the session already has ${String(MOST_RULES)} rules`,
        next: 'use a wildcard such as *.example.com',
      });
    }
    database.transaction(() => {
      const owner = scope === 'profile' ? row.profile : sessionId;
      rules.put({ scope, owner, host, effect, tcp, ech, addedAt: now() });
      const carries = { ...(tcp ? { tcp } : {}), ...(ech ? { ech: 'allow' as const } : {}) };
      events.append(sessionId, [
        { type: 'policy.changed', data: { action: effect, host, scope, ...carries } },
      ]);
    });
    this.#changes += 1;
  }

  /** Removes the rules of a deleted session. Called in a transaction. */
  forgetSession(sessionId: string): void {
    this.#options.rules.removeSession(sessionId);
    this.#cache.delete(sessionId);
    this.#changes += 1;
  }

  /**
   * Removes the rules of an undeployed profile, so that a later one of its name starts without them. Called in a
   * transaction.
   */
  forgetProfile(profile: string): void {
    this.#options.rules.removeProfile(profile);
    this.#changes += 1;
  }

  #load(sessionId: string): readonly LoadedRule[] {
    const { rules, profiles, sessions } = this.#options;
    const row = sessions.get(sessionId);
    if (row === null || row.status === 'deleted') return this.#declared.get(sessionId) ?? [];
    const profile = profiles.get(row.profile);
    const key = `${String(this.#changes)} ${row.profile} ${String(profile?.deployedAt ?? 0)} ${String(profile?.version ?? 0)}`;
    const cached = this.#cache.get(sessionId);
    if (cached?.key === key) return cached.rules;
    const all = withPatterns([
      ...rules
        .listFor(sessionId, row.profile)
        .map(({ scope, owner: _owner, ...rule }) => ({ ...rule, from: scope })),
      ...(profile?.config.egress ?? []).map(fromFile),
    ]);
    this.#cache.set(sessionId, { key, rules: all });
    return all;
  }
}

/** A rule of `holdfast.yaml`. */
function fromFile({ host, quiet, tcp, ech, mayBePrivate }: SetupRule): HostRule {
  return {
    id: null,
    from: 'file',
    host,
    effect: quiet === true ? 'deny' : 'allow',
    quiet: quiet === true,
    tcp: tcp === true,
    ech: ech === 'allow',
    ...(mayBePrivate === true ? { mayBePrivate } : {}),
    addedAt: null,
  };
}

function withPatterns(rules: readonly HostRule[]): LoadedRule[] {
  return rules.flatMap(({ host, ...rest }) => {
    const pattern = parseHostPattern(host);
    return 'refused' in pattern ? [] : [{ ...rest, pattern, shown: host }];
  });
}
