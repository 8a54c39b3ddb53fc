import type { ProfileSummary } from '../../protocol/entities.ts';
import type { AgentConfig } from '../../protocol/profile.ts';
import type { NewProfileRow } from '../store/profiles.ts';

/** A profile as clients see it. */
export function summarize(row: NewProfileRow, sessions: number): ProfileSummary {
  return {
    name: row.name,
    version: row.version,
    deployedAt: new Date(row.deployedAt).toISOString(),
    image: row.image,
    agent: agentOf(row.config.agent),
    persistent: row.config.persistence === 'persistent',
    files: row.files,
    bytes: row.bytes,
    sessions,
    source: row.source,
    checks: row.config.checks ?? {},
  };
}

function agentOf(agent: AgentConfig): ProfileSummary['agent'] {
  const { protocol } = agent;
  return 'entry' in agent
    ? { protocol, entry: agent.entry, command: null }
    : { protocol, entry: null, command: agent.command };
}
