import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { applyPreset } from '../../../protocol/presets/apply.ts';
import { PRESETS } from '../../../protocol/presets/index.ts';
import { PRESET_NAMES } from '../../../protocol/presets/names.ts';
import { ProfileSchema } from '../../../protocol/profile.ts';
import { AGENT_PACKAGES, agentImageOf } from '../../../scripts/setup/agents.mjs';

const EXAMPLES = join(import.meta.dirname, '../../../examples/agents');
const MOST_LINES = 25;

test('each preset has an example, and an image with its packages in the version that was tried', () => {
  expect(readdirSync(EXAMPLES).sort()).toEqual([...PRESET_NAMES].sort());
  expect(Object.keys(AGENT_PACKAGES).sort()).toEqual([...PRESET_NAMES].sort());
});

test.each(PRESET_NAMES)('%s: short, valid, on the image that is built for it', (name) => {
  const text = readFileSync(join(EXAMPLES, name, 'holdfast.yaml'), 'utf8');
  expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(MOST_LINES);
  const profile = ProfileSchema.parse(applyPreset(parse(text)));
  expect(profile.name).toBe(name);
  expect(`${profile.image ?? ''}:latest`).toBe(agentImageOf(name));
  expect(profile.agent).toMatchObject({ preset: name, state: PRESETS[name].state });
  const packages = AGENT_PACKAGES[name] ?? [];
  expect(packages.map((one) => one.slice(0, one.lastIndexOf('@'))).sort()).toEqual(
    [...PRESETS[name].packages].sort(),
  );
  expect(packages.some((one) => one.endsWith(`@${PRESETS[name].triedWith}`))).toBe(true);
  const config = profile.env?.['OPENCODE_CONFIG'];
  if (config !== undefined) {
    expect(existsSync(join(EXAMPLES, name, config.replace('/agent/', '')))).toBe(true);
  }
});
