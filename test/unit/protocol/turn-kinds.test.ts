import { describe, expect, test } from 'vitest';
import { PRESETS } from '../../../protocol/presets/index.ts';
import { applyPreset } from '../../../protocol/presets/apply.ts';
import { ProfileSchema } from '../../../protocol/profile.ts';
import { TURN_KINDS, TURN_KIND_NAMES, inputOfKind, runsAs } from '../../../protocol/turn-kinds.ts';
import { driverFor } from '../../../supervisor/agents/drivers.ts';

/** The least that `agent` has to say, by how it runs. */
const LEAST = {
  worker: { entry: 'agent.py' },
  program: { command: ['cat'] },
  conversation: { command: ['cat'] },
};

describe.each(TURN_KIND_NAMES)('the kind %s', (kind) => {
  const { runs, presetCommand, input } = TURN_KINDS[kind];

  test('can be written in holdfast.yaml, and its driver runs it', () => {
    const { agent } = ProfileSchema.parse({ name: 'x', agent: { protocol: kind, ...LEAST[runs] } });
    const driver = driverFor(agent);
    expect({ kind: driver.kind, runs: driver.runs }).toEqual({ kind, runs });
    expect(runsAs(agent, runs)).toBe(true);
    expect(inputOfKind(kind)).toBe(input);
  });

  test('takes the command of a preset, if it has one', () => {
    const filled = applyPreset({ name: 'x', agent: { preset: 'claude', protocol: kind } });
    const parsed = ProfileSchema.safeParse(filled);
    expect(parsed.success).toBe(presetCommand !== null);
    expect(parsed.data?.agent).toEqual(
      presetCommand === null
        ? undefined
        : expect.objectContaining({ command: PRESETS.claude[presetCommand] }),
    );
  });
});

test('a kind of another version takes a prompt, and nothing else is known of it', () => {
  expect(inputOfKind('of-tomorrow')).toBe('prompt');
  expect(ProfileSchema.safeParse({ name: 'x', agent: { protocol: 'of-tomorrow' } }).success).toBe(false);
});
