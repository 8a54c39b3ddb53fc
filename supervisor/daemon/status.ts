import type { Result } from '../../protocol/methods.ts';
import type { Program } from './program.ts';
import type { Services } from './composition.ts';

/** The answer to `supervisor/status`. `live`: sessions that have a sandbox. */
export function supervisorStatus(
  services: Services,
  program: Program,
  process_: { readonly startedAt: number; readonly connections: number },
): Result<'supervisor/status'> {
  const { home, database, engine, sessions, turns } = services;
  const counts = sessions.countByStatus();
  const { deleted, ...present } = counts;
  const total = Object.values(present).reduce((sum, many) => sum + many, 0);
  return {
    pid: process.pid,
    version: program.info.version,
    build: program.info.build,
    home: home.root,
    startedAt: new Date(process_.startedAt).toISOString(),
    epoch: database.epoch(),
    rssBytes: process.memoryUsage.rss(),
    connections: process_.connections,
    engine: engine.status(),
    sessions: { ...present, deleted, total, live: counts.active + counts.idle + counts.paused },
    turns: turns.countByStatus(),
    logFile: home.logFile,
  };
}
