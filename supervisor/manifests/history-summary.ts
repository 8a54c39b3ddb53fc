import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type { Content } from '../../protocol/contents.ts';
import type { SessionEvent } from '../../protocol/entities.ts';
import { typesThat } from '../../protocol/event-facts.ts';
import { type EventEntry, parseEvent } from '../../protocol/events.ts';
import { MANIFEST_LIMITS, type Manifest } from '../../protocol/manifest.ts';
import type { EventLog, Head } from '../history/event-log.ts';
import { type NewestImport, newestImport } from '../history/newest-import.ts';

const PAGE_EVENTS = 500;
/** What a manifest is made of: most events are others. */
const TYPES = typesThat('isInManifests');
/** Hosts that are counted separately: whoever asks for more has them counted together. */
const MAX_HOSTS = 5000;
/** The agent names its model, so it may be anything. */
const MODEL_CHARACTERS = 100;
const MANY = '*';
const DECISIONS = ['allowed', 'denied', 'failed'] as const;

export type HistorySummary = Pick<
  Manifest,
  'image' | 'turns' | 'egress' | 'handoffs' | 'checks' | 'permissions' | 'history' | 'importedFrom'
>;
type Turn = Manifest['turns']['listed'][number];
type Check = NonNullable<Manifest['checks']>['listed'][number];
type Host = Manifest['egress']['listed'][number];

export interface HistorySummaryOptions {
  readonly events: Pick<EventLog, 'read' | 'newest' | 'start'>;
  readonly sessionId: string;
  /** The last event that is looked at. */
  readonly head: Head;
  /** ms, from any beginning. */
  readonly clock: () => number;
  /** How many events are looked at, and for how many ms. Default: those of a manifest that somebody asked for. */
  readonly limits?: { readonly events: number; readonly readMs: number };
}

/**
 * What a manifest says of a history, from its end backwards, as far as the limits allow; not what another home wrote and this one
 * imported. Yields to other work in between.
 */
export async function summarizeHistory({
  events,
  sessionId,
  head,
  clock,
  limits = MANIFEST_LIMITS,
}: HistorySummaryOptions): Promise<HistorySummary> {
  const summary = new Summary();
  const until = clock() + limits.readMs;
  const imported = newestImport(events, sessionId);
  const lowest = Math.max(imported?.seq ?? 0, events.start(sessionId).seq, head.seq - limits.events);
  let from = head.seq;
  while (from > lowest && clock() < until) {
    const to = from;
    from = Math.max(lowest, to - PAGE_EVENTS);
    const page: SessionEvent[] = [];
    for (let after = from; after < to;) {
      const part = events.read(sessionId, { type: TYPES, after, upTo: to, limit: PAGE_EVENTS });
      const last = part.at(-1);
      if (last === undefined) break;
      page.push(...part);
      after = last.seq;
    }
    for (const event of page.reverse()) summary.add(event);
    await setImmediate();
  }
  const history = { seq: head.seq, hash: head.hash, first: from + 1 };
  return { ...summary.result(), history, importedFrom: originOf(imported) };
}

function originOf(imported: NewestImport | null): Manifest['importedFrom'] {
  if (imported === null) return null;
  const { home, keyId, eventSeq } = imported.entry.data;
  return { home, keyId, eventSeq };
}

/** Gets events from the newest to the oldest. */
class Summary {
  readonly #statuses = new Map<string, string>();
  readonly #models = new Map<string, string>();
  /** The inputs of turns that were edited while they waited. */
  readonly #edited = new Map<string, Content>();
  readonly #turns: Turn[] = [];
  readonly #hosts = new Map<string, Host>();
  readonly #handoffs: Manifest['handoffs']['listed'] = [];
  readonly #checks: Check[] = [];
  readonly #permissions = { asked: 0, allowed: 0, rejected: 0 };
  #checkCount = 0;
  #turnCount = 0;
  #handoffCount = 0;
  #image: Manifest['image'] = null;

  add(event: SessionEvent): void {
    const entry = parseEvent(event);
    if (entry === null) return;
    switch (entry.type) {
      case 'turn.ended':
        if (this.#turns.length < MANIFEST_LIMITS.turns)
          this.#statuses.set(entry.data.turnId, entry.data.status);
        return;
      case 'agent.option': {
        const { turnId, option, value } = entry.data;
        if (turnId !== null && option === 'model' && this.#turns.length < MANIFEST_LIMITS.turns)
          // The newest value, because that of the end comes first.
          this.#models.set(turnId, this.#models.get(turnId) ?? value.slice(0, MODEL_CHARACTERS));
        return;
      }
      case 'turn.edited': {
        const { turnId, content } = entry.data;
        if (this.#turns.length < MANIFEST_LIMITS.turns)
          this.#edited.set(turnId, this.#edited.get(turnId) ?? content);
        return;
      }
      case 'turn.queued':
        this.#addTurn(entry.data, event.at);
        return;
      case 'sandbox.started': {
        const { image, imageIdentity, codeVersion, generation } = entry.data;
        this.#image ??= { name: image, identity: imageIdentity, codeVersion, generation };
        return;
      }
      case 'egress':
        this.#addEgress(entry.data);
        return;
      case 'check.ended':
        this.#addCheck(entry.data, event.at);
        return;
      case 'permission.asked':
        this.#permissions.asked += 1;
        return;
      case 'permission.answered': {
        const kind = entry.data.option?.kind;
        if (kind?.startsWith('allow') === true) this.#permissions.allowed += 1;
        else if (kind !== undefined) this.#permissions.rejected += 1;
        return;
      }
      case 'handoff.approved':
      case 'handoff.made':
      case 'handoff.undone':
        this.#addHandoff(entry, event.at);
        return;
      default:
        return;
    }
  }

  result(): Omit<HistorySummary, 'history' | 'importedFrom'> {
    const hosts = [...this.#hosts.values()];
    const sum = (of: (host: Host) => number): number => hosts.reduce((total, host) => total + of(host), 0);
    const byUse = (a: Host, b: Host): number =>
      Number(b.allowed > 0) - Number(a.allowed > 0) ||
      b.bytesOut - a.bytesOut ||
      b.allowed + b.denied + b.failed - (a.allowed + a.denied + a.failed) ||
      (a.host < b.host ? -1 : 1);
    return {
      image: this.#image,
      turns: { total: this.#turnCount, listed: this.#turns },
      egress: {
        hosts: hosts.length,
        allowed: sum((host) => host.allowed),
        denied: sum((host) => host.denied),
        failed: sum((host) => host.failed),
        bytesOut: sum((host) => host.bytesOut),
        bytesIn: sum((host) => host.bytesIn),
        listed: hosts.sort(byUse).slice(0, MANIFEST_LIMITS.hosts),
      },
      handoffs: { total: this.#handoffCount, listed: this.#handoffs },
      checks: { total: this.#checkCount, listed: this.#checks },
      permissions: this.#permissions,
    };
  }

  #addTurn(
    { turnId, kind, content: queued }: Extract<EventEntry, { type: 'turn.queued' }>['data'],
    at: string,
  ): void {
    this.#turnCount += 1;
    const content = this.#edited.get(turnId) ?? queued;
    if (this.#turns.length < MANIFEST_LIMITS.turns) {
      this.#turns.push({
        id: turnId,
        kind,
        at,
        prompt: content === null ? null : { sha256: content.sha256, bytes: content.bytes },
        status: this.#statuses.get(turnId) ?? null,
        model: this.#models.get(turnId) ?? null,
      });
    }
    this.#statuses.delete(turnId);
    this.#models.delete(turnId);
    this.#edited.delete(turnId);
  }

  #addEgress(data: Extract<EventEntry, { type: 'egress' }>['data']): void {
    const name = `${data.host}:${data.port}`;
    const isNew = !this.#hosts.has(name) && this.#hosts.size >= MAX_HOSTS;
    const key = isNew ? MANY : name;
    const host = this.#hosts.get(key) ?? {
      host: isNew ? MANY : data.host.slice(0, 300),
      port: isNew ? 0 : data.port,
      ...{ allowed: 0, denied: 0, failed: 0, bytesOut: 0, bytesIn: 0 },
    };
    for (const decision of DECISIONS) if (data.decision === decision) host[decision] += data.count;
    host.bytesOut += data.bytesOut;
    host.bytesIn += data.bytesIn;
    this.#hosts.set(key, host);
  }

  #addCheck(data: Extract<EventEntry, { type: 'check.ended' }>['data'], at: string): void {
    this.#checkCount += 1;
    if (this.#checks.length >= MANIFEST_LIMITS.checks) return;
    const { checkId: id, name, command, of, tree, review, exitCode } = data;
    const sha256 = createHash('sha256').update(command).digest('hex');
    this.#checks.push({
      id,
      name,
      command: sha256,
      of,
      tree,
      accepted: review?.accepted ?? null,
      exitCode,
      at,
    });
  }

  #addHandoff(entry: Extract<EventEntry, { type: `handoff.${string}` }>, at: string): void {
    this.#handoffCount += 1;
    if (this.#handoffs.length >= MANIFEST_LIMITS.handoffs) return;
    const { handoffId, manifestId, to, commit, tree, snapshot, files, released, quarantined } = entry.data;
    this.#handoffs.push({
      step: STEPS[entry.type],
      at,
      handoff: handoffId,
      manifest: manifestId,
      ...{ to, commit, tree, snapshot, files, released, quarantined },
    });
  }
}

const STEPS = {
  'handoff.approved': 'approved',
  'handoff.made': 'made',
  'handoff.undone': 'undone',
} as const;
