import { describe, expect, test } from 'vitest';
import { commandDriver } from '../../../supervisor/agents/command.ts';
import { agentEndedOutcome } from '../../../supervisor/agents/acp/outcomes.ts';
import { TurnProgressSchema } from '../../../sidecar/wire.ts';
import { AgentSchema } from '../../../protocol/profile.ts';

const CODES = [
  [127, 'sh, or a program that it started, was not found in the image'],
  [126, 'sh, or a program that it started, cannot be run'],
] as const;

describe('the exit codes with which shells also report about programs that they start', () => {
  test.each(CODES)('%i of a command', (exitCode, why) => {
    const config = AgentSchema.parse({ protocol: 'command', command: ['sh'] });
    if (config.protocol !== 'command') throw new Error('this is a command');
    const progress = { state: 'ended', stdout: 0, stderr: 0, result: 0, worker: null, workerDied: false };
    const ended = TurnProgressSchema.parse({ ...progress, exitCode });
    expect(commandDriver(config).outcome(ended, null).error?.data.why).toBe(why);
  });

  test.each(CODES)('%i of an agent that stays', (exitCode, why) => {
    expect(agentEndedOutcome(exitCode, 'sh', '').error?.data.why).toBe(why);
  });
});
