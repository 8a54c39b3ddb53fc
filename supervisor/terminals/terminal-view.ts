import type { Terminal } from '../../protocol/terminals.ts';
import { isoTime } from '../base/iso-time.ts';
import type { TerminalRow } from '../store/terminals.ts';

export function terminalView(row: TerminalRow): Terminal {
  return {
    terminalId: row.id,
    sessionId: row.sessionId,
    status: row.endedAt === null ? 'running' : 'ended',
    command: row.command,
    cwd: row.cwd,
    createdAt: isoTime(row.createdAt),
    endedAt: row.endedAt === null ? null : isoTime(row.endedAt),
    exitCode: row.exitCode,
    why: row.why,
  };
}
