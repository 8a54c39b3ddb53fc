import type { Manifest } from '../../protocol/manifest.ts';

/** Items of each list. */
const MAX_LISTED = 20;
const NOTE =
  'For the information of programs in this sandbox. Not signed, and anything here can change it: nobody relies on it. It is as of `madeAt`.';

/**
 * What a manifest tells the agent about its own session, as JSON: nothing of the installation, of what people decided, or of where
 * the project comes from. The agent's own output may be in it, and no secret.
 */
export function agentCopyOf(manifest: Manifest): Buffer {
  const { id, reason, madeAt, session, memory, snapshot, base, image, turns, egress } = manifest;
  const { credentials, checks, changes, setup, ports, history } = manifest;
  const copy = {
    note: NOTE,
    ...{ id, reason, madeAt },
    session: { id: session.id, name: session.name, profile: session.profile, createdAt: session.createdAt },
    ...{ memory, snapshot },
    base: base === null ? null : { folder: base.folder, branch: base.branch, commit: base.commit },
    ...{ image, setup },
    turns: { total: turns.total, listed: turns.listed.slice(0, MAX_LISTED) },
    egress: { ...egress, listed: egress.listed.slice(0, MAX_LISTED) },
    credentials: credentials.map(({ name, host }) => ({ name, host })),
    checks: checks === null ? null : { total: checks.total, listed: checks.listed.slice(0, MAX_LISTED) },
    changes: changes === null ? null : { ...changes, listed: changes.listed.slice(0, MAX_LISTED) },
    ports,
    history: { seq: history.seq, hash: history.hash },
  };
  return Buffer.from(`${JSON.stringify(copy, null, 2)}\n`);
}
