import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DatabaseSync } from 'node:sqlite';
import { z } from 'zod';
import type { Session, SessionEvent } from '../../../protocol/entities.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import {
  projectionMismatches as rowDifferences,
  type ProjectedSession,
  replay,
} from '../../../supervisor/history/projection.ts';
import { Database } from '../../../supervisor/store/database.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import type { FaultHome } from './fault-home.ts';

const SETTLE_MS = 20_000;
/** What a checkpoint says of the events before it; `session/verify` judges it. */
const StateSchema = z.object({
  state: z.string().transform((text) => JSON.parse(text) as ProjectedSession),
});

/**
 * Soon: what sessions say of themselves is what Docker shows, and nothing is left that belongs to no session.
 * Fails with all that is still wrong then.
 */
export async function expectSettled(home: FaultHome, ms = SETTLE_MS): Promise<void> {
  const until = Date.now() + ms;
  for (;;) {
    const wrong = await findInconsistencies(home);
    if (wrong.length === 0) return;
    if (Date.now() > until)
      throw new Error(`not settled after ${ms} ms:\n  ${wrong.join('\n  ')}\n${await home.readLog()}`);
    await sleep(100);
  }
}

/** What does not fit together now, in words. */
export async function findInconsistencies(home: FaultHome): Promise<string[]> {
  const [{ sessions }, objects] = await Promise.all([
    home.call('session/list', { limit: 1000 }),
    home.listObjects(),
  ]);
  const known = new Map(sessions.map((session) => [session.id, session]));
  const wrong: string[] = [];
  for (const session of sessions) {
    const agents = objects.filter(
      ({ labels }) => isSide(labels, 'agent') && sessionOf(labels) === session.id,
    );
    if (agents.length > 1) wrong.push(`${session.id} has ${agents.length} agent containers`);
    const wanted = wantedAgent(session);
    const shown = agents[0]?.state ?? 'none';
    if (shown !== wanted)
      wrong.push(`${session.id} is ${session.status}, its agent container is ${shown} and not ${wanted}`);
  }
  for (const { kind, name, labels } of objects) {
    const session = sessionOf(labels);
    const role = labels['dev.holdfast.role'] ?? 'unknown';
    if (session !== undefined && !known.has(session))
      wrong.push(`${kind} ${name} (${role}) belongs to no session`);
    // The one that reads what sandboxes send runs as long as the supervisor.
    if (role === 'helper' && !name.includes('-egress-')) wrong.push(`helper ${name} is left over`);
  }
  wrong.push(...(await strayFolders(home, new Set(known.keys()))));
  return wrong;
}

/** All bytes that a turn wrote to one of its streams, as the supervisor kept them. */
export async function turnOutput(
  home: FaultHome,
  turn: string,
  stream: 'stdout' | 'stderr' | 'result',
): Promise<Buffer> {
  const parts: Buffer[] = [];
  let offset = 0;
  const { peer } = await home.connect();
  for (;;) {
    const { result, bytes } = await peer.callWithBytes('turn/output', {
      turn,
      stream,
      offset,
      limit: 1024 * 1024,
      waitMs: 1000,
    });
    parts.push(bytes);
    offset += bytes.length;
    if (result.ended && offset >= result.total) return Buffer.concat(parts);
  }
}

/** The history of a session is whole: seq without gaps, the chain of hashes holds, and replayed it gives what the rows hold. */
export async function expectWholeHistory(home: FaultHome, session: string): Promise<void> {
  await expectReplayed(home, session);
  const { ok, firstInvalid, checkpoint } = await home.call('session/verify', { session });
  if (!ok) throw new Error(`the history of ${session} does not hold at ${String(firstInvalid)}`);
  // A history that was cut is whole from there on.
  let after = checkpoint?.seq ?? 0;
  for (;;) {
    const { events, lastSeq } = await home.call('session/events', { session, after, limit: 1000 });
    for (const { seq } of events) {
      if (seq !== after + 1) throw new Error(`the history of ${session} goes from ${after} to ${seq}`);
      after = seq;
    }
    if (after >= lastSeq) return;
  }
}

/** The rows may move on between two looks: they agree soon or they do not. */
async function expectReplayed(home: FaultHome, session: string): Promise<void> {
  const until = Date.now() + 10_000;
  for (;;) {
    const database = new Database(new DatabaseSync(join(home.path, 'holdfast.db'), { readOnly: true }));
    try {
      const events = new EventLog(database);
      const told: SessionEvent[] = [];
      const start = events.start(session).seq;
      for (let page = events.read(session, { after: start }); page.length > 0;) {
        told.push(...page);
        page = events.read(session, { after: page.at(-1)?.seq ?? 0 });
      }
      const before = database.get('SELECT state FROM history_checkpoints WHERE sessionId = ?', session);
      const state = before === undefined ? null : StateSchema.parse(before).state;
      const row = new Sessions(database).get(session);
      if (row === null) throw new Error(`there is no row of ${session}`);
      const wrong = rowDifferences(
        replay(told, state),
        row,
        new Turns(database).listBySession(session, 1000),
      );
      if (wrong.length === 0) return;
      if (Date.now() > until)
        throw new Error(`history and rows of ${session} differ:\n  ${wrong.join('\n  ')}`);
    } finally {
      database.close();
    }
    await sleep(100);
  }
}

function wantedAgent({ status }: Session): string {
  switch (status) {
    case 'active':
    case 'idle':
      return 'running';
    case 'paused':
      return 'paused';
    case 'created':
    case 'resumable':
    case 'expired':
    case 'deleted':
      return 'none';
  }
}

async function strayFolders(home: FaultHome, known: ReadonlySet<string>): Promise<string[]> {
  const names = (folder: string): Promise<string[]> => readdir(join(home.path, folder)).catch(() => []);
  const wrong: string[] = [];
  for (const folder of ['workspaces', 'run', 'artifacts']) {
    for (const name of await names(folder)) {
      if (!known.has(name)) wrong.push(`${folder}/${name} belongs to no session`);
    }
  }
  for (const profile of await names('deploys')) {
    for (const version of await names(join('deploys', profile))) {
      if (version.endsWith('.tmp')) wrong.push(`deploys/${profile}/${version} is left over`);
    }
  }
  return wrong;
}

function isSide(labels: Readonly<Record<string, string>>, side: 'agent' | 'sidecar'): boolean {
  return labels['dev.holdfast.role'] === side;
}

function sessionOf(labels: Readonly<Record<string, string>>): string | undefined {
  return labels['dev.holdfast.session'];
}
