import { type BriefProgram, runBriefly } from '../engine/brief-program.ts';
import type { Engine } from '../engine/port.ts';

/** Runs a short program in the agent container of a setup: see `runBriefly`. */
export async function runInAgent(
  engine: Pick<Engine, 'exec' | 'stopAgent'>,
  sandboxId: string,
  program: BriefProgram,
  signal: AbortSignal,
  limitMs?: number,
): Promise<number | null> {
  const place = {
    start: (spec: Parameters<Engine['exec']>[1]) => engine.exec(sandboxId, spec),
    end: () => engine.stopAgent(sandboxId, 0),
  };
  return await runBriefly(place, program, signal, limitMs);
}
