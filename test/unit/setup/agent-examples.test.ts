import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { CREDENTIAL_PRESETS } from '../../../protocol/credential-presets.ts';
import { applyPreset } from '../../../protocol/presets/apply.ts';
import { PRESETS } from '../../../protocol/presets/index.ts';
import { PRESET_NAMES } from '../../../protocol/presets/names.ts';
import { ProfileSchema } from '../../../protocol/profile.ts';
import { AGENT_PACKAGES } from '../../../scripts/setup/agents.mjs';
import { withProjectPackages } from '../../../supervisor/profiles/project-packages.ts';

const EXAMPLES = join(import.meta.dirname, '../../../examples/agents');
const MOST_LINES = 25;

test('each preset has an example, and an image with its packages', () => {
  expect(readdirSync(EXAMPLES).sort()).toEqual([...PRESET_NAMES].sort());
  // The script that builds the images runs on older versions of Node, and cannot read the presets.
  expect(AGENT_PACKAGES).toEqual(
    Object.fromEntries(PRESET_NAMES.map((name) => [name, PRESETS[name].packages])),
  );
});

test.each(PRESET_NAMES)('%s: short, valid, installs its agent, and names its key', async (name) => {
  const text = readFileSync(join(EXAMPLES, name, 'holdfast.yaml'), 'utf8');
  expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(MOST_LINES);
  const profile = ProfileSchema.parse(applyPreset(parse(text)));
  const preset = PRESETS[name];
  expect(profile.name).toBe(name);
  expect(profile.image).toBeUndefined();
  expect(profile.agent).toMatchObject({ preset: name, command: preset.acp, state: preset.state });
  expect(profile.credentials).toEqual([preset.credential.name]);
  expect(profile.env).toEqual({ ...preset.env, ...preset.asking?.ask, ...preset.credential.env });
  expect(text).toContain(`holdfast secret set ${CREDENTIAL_PRESETS[preset.credential.name].secret}`);
  const complete = await withProjectPackages(profile, join(EXAMPLES, name));
  expect(complete.profile.setup?.packages).toEqual({ npm: preset.packages });
  expect(preset.packages[0]?.endsWith(`@${preset.triedWith}`)).toBe(true);
});
