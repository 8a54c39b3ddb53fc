import { isIP } from 'node:net';
import { AGENT_TOOL_LIMITS } from '../../protocol/agent-tools.ts';
import type { PermissionOption } from '../../protocol/agent-events.ts';
import { HOST_MACHINE, formatHostPattern, isLoopback, parseHostPattern } from '../../protocol/egress.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { PermissionAnswer, Permissions } from '../agents/permissions.ts';
import type { Ids } from '../base/ids.ts';
import { isPublicAddress, isUnspecifiedAddress } from '../egress/addresses.ts';
import { decide } from '../egress/decide.ts';
import type { Policies } from '../egress/policies.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { PermissionRow, PermissionRows } from '../store/permissions.ts';
import type { Turns } from '../store/turns.ts';

const REASON_CHARACTERS = 300;
/** A question shows the whole name: what decides about it is its end. */
const HOST_CHARACTERS = 70;
const HTTPS_PORT = 443;
const OPTIONS: readonly PermissionOption[] = [
  { id: 'session', name: 'Allow for this session', kind: 'allow_always' },
  { id: 'once', name: 'Allow one connection', kind: 'allow_once' },
  { id: 'no', name: 'Reject', kind: 'reject_once' },
];

export interface EgressRequestsOptions {
  readonly database: Database;
  readonly permissionRows: PermissionRows;
  readonly permissions: Pick<Permissions, 'changes'>;
  readonly policies: Policies;
  readonly events: EventLog;
  readonly turns: Pick<Turns, 'getRunning'>;
  readonly ids: Pick<Ids, 'next'>;
  /** ms since 1970. */
  readonly now: () => number;
}

/** What an agent asks for: one host, and why. */
export interface WantedHost {
  readonly host: string;
  readonly reason: string;
}

/**
 * Asks a person for a host that an agent wants to reach. The question is a permission of the turn that runs, always for a
 * person: what a profile says about permissions does not answer it. A call for a host that is asked already waits for the
 * same answer, so a call that was lost on the way can be repeated.
 */
export class EgressRequests {
  readonly #options: EgressRequestsOptions;

  constructor(options: EgressRequestsOptions) {
    this.#options = options;
  }

  /**
   * The answer, for the agent. Errors: `invalid_params` for what is not one host, `invalid_state` without a turn, `conflict` for a host
   * that is denied, `overloaded` for too many questions, `timeout` while nobody has answered.
   */
  async ask(sessionId: string, wanted: WantedHost, signal: AbortSignal): Promise<string> {
    const wantedHost = parseHost(wanted.host);
    const { host, port, shown } = wantedHost;
    const verdict = decide(this.#options.policies.rulesOf(sessionId), host, port);
    if (verdict.allowed) return `${shown} is allowed already: connect through the proxy of the sandbox.`;
    if (verdict.reason === 'denied') throw rejected(shown, 'a rule denies it');
    const id = this.#find(sessionId, shown) ?? this.#insert(sessionId, wantedHost, wanted.reason);
    const { answeredAt, answer } = await this.#answerTo(id, signal);
    if (answeredAt === null) {
      throw new HoldfastError('timeout', `Nobody has answered yet whether ${shown} may be reached`, {
        next: 'do something else meanwhile; a call for the same host waits for the same answer',
      });
    }
    if (answer === null) throw rejected(shown, 'the turn ended before anybody answered');
    if (answer.kind.startsWith('reject')) throw rejected(shown, 'a person rejected it');
    const scope = answer.id === 'once' ? 'the next connection' : 'this session';
    return `${shown} is allowed for ${scope}: connect through the proxy of the sandbox.`;
  }

  /** What the answer of a person leads to. Called in the transaction that stores it. Errors: those of `Policies.setRule`. */
  handleAnswer({ row: { sessionId, host }, option }: PermissionAnswer): void {
    if (host === null || option.kind.startsWith('reject')) return;
    this.#options.policies.setRule(sessionId, 'allow', host, option.id === 'once' ? 'once' : 'session');
  }

  /** The question for this host that waits in the turn. Errors: `conflict` if it was rejected, `overloaded`. */
  #find(sessionId: string, host: string): string | null {
    const turn = this.#runningTurn(sessionId);
    const asked = this.#options.permissionRows.listHosts(turn);
    const waiting = asked.filter(({ answeredAt }) => answeredAt === null);
    const same = asked.filter((row) => row.host === host);
    const open = same.find(({ answeredAt }) => answeredAt === null);
    if (open !== undefined) return open.id;
    if (same.some(({ answer }) => answer?.kind.startsWith('reject') === true))
      throw rejected(host, 'a person rejected it in this turn');
    if (asked.length >= AGENT_TOOL_LIMITS.hostsPerTurn || waiting.length >= AGENT_TOOL_LIMITS.waitingHosts) {
      throw new HoldfastError('overloaded', `Nobody is asked for ${host}`, {
        why: `a turn asks for ${AGENT_TOOL_LIMITS.hostsPerTurn} hosts, and ${AGENT_TOOL_LIMITS.waitingHosts} of them at a time`,
        next: 'name the hosts that are missing in the answer to the person',
      });
    }
    return null;
  }

  #insert(sessionId: string, { host, shown }: ParsedHost, reason: string): string {
    const { database, permissionRows, events, ids, now } = this.#options;
    const turnId = this.#runningTurn(sessionId);
    const id = ids.next('perm');
    const kind = 'fetch';
    // Our words come first: the agent's own must not pass for them.
    const title = `Open the network to ${shown}${warningOf(host)}. The agent says: ${oneLine(reason)}`;
    const options = [...OPTIONS];
    database.transaction(() => {
      permissionRows.insert({
        ...{ id, sessionId, turnId, kind, title, options, host: shown },
        locations: [],
        askedAt: now(),
      });
      const data = { permissionId: id, turnId, call: null, kind, title, options, content: null } as const;
      events.append(sessionId, [{ type: 'permission.asked', data }]);
    });
    return id;
  }

  async #answerTo(id: string, signal: AbortSignal): Promise<PermissionRow> {
    const { permissionRows, permissions } = this.#options;
    const row = permissionRows.getOrThrow(id);
    if (row.answeredAt !== null) return row;
    await permissions.changes.wait(id, AGENT_TOOL_LIMITS.answerWaitMs, signal);
    return permissionRows.getOrThrow(id);
  }

  #runningTurn(sessionId: string): string {
    const turn = this.#options.turns.getRunning(sessionId);
    if (turn !== null) return turn.id;
    throw new HoldfastError('invalid_state', 'Nobody is asked', {
      why: 'no turn runs, and a question belongs to a turn',
      next: 'ask again when a person has prompted you',
    });
  }
}

interface ParsedHost {
  /** Canonical. */
  readonly host: string;
  readonly port: number;
  /** The text of its rule. */
  readonly shown: string;
}

/** What a person has to know about a host that is not somewhere in the internet; empty for the others. */
function warningOf(host: string): string {
  if (host === HOST_MACHINE.name) return ', a port of your own machine';
  const isPrivate = isIP(host) !== 0 && !isPublicAddress(host);
  return isPrivate ? ', an address of your own machine or network' : '';
}

/** One host and one port: what a person decides about must be plain. */
function parseHost(text: string): ParsedHost {
  const pattern = parseHostPattern(text);
  const why =
    'refused' in pattern
      ? pattern.refused
      : pattern.wildcard
        ? 'name one host, without a wildcard'
        : isLoopback(pattern.host)
          ? 'this address is the sandbox itself, which needs no permission'
          : isIP(pattern.host) !== 0 && isUnspecifiedAddress(pattern.host)
            ? 'this is the address of no machine'
            : pattern.host.length > HOST_CHARACTERS
              ? `a person must be able to read it: at most ${String(HOST_CHARACTERS)} characters`
              : null;
  if ('refused' in pattern || why !== null) {
    throw new HoldfastError('invalid_params', 'This is not a host that can be asked for', {
      ...(why === null ? {} : { why }),
      next: 'name a host such as api.example.com or api.example.com:8443',
    });
  }
  const { host, port } = pattern;
  return { host, port: port ?? HTTPS_PORT, shown: formatHostPattern(pattern) };
}

function rejected(host: string, why: string): HoldfastError {
  return new HoldfastError('conflict', `${host} may not be reached`, {
    why,
    next: 'continue without it, and do not ask for it again in this turn',
  });
}

function oneLine(text: string): string {
  return text
    .replaceAll(/[\p{C}\p{Zl}\p{Zp}\s]+/gu, ' ')
    .slice(0, REASON_CHARACTERS)
    .trim();
}
