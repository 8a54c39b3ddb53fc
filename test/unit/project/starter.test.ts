import { expect, test } from 'vitest';
import { PRESETS } from '../../../protocol/presets/index.ts';
import { PRESET_NAMES } from '../../../protocol/presets/names.ts';
import { profileNameFor, starterProfile } from '../../../project/starter.ts';
import { checkProfile } from '../../../supervisor/profiles/read.ts';

test.each(PRESET_NAMES)(
  'a starter with %s deploys as it is, with its packages and its credential',
  (preset) => {
    const { text, packages, secret } = starterProfile('mine', preset);
    const profile = checkProfile(text);
    expect(profile).toMatchObject({
      name: 'mine',
      persistence: 'persistent',
      agent: { protocol: 'acp', preset },
      setup: { packages: 'auto' },
      credentials: [PRESETS[preset].credential.name],
    });
    expect(packages).toEqual(PRESETS[preset].packages);
    expect(text).toContain(secret);
  },
);

test('a starter without a preset runs prompts as scripts', () => {
  const { text, packages, secret } = starterProfile('mine', null);
  expect(checkProfile(text)).toMatchObject({ name: 'mine', agent: { protocol: 'command', command: ['sh'] } });
  expect({ packages, secret }).toEqual({ packages: [], secret: null });
});

test.each([
  ['My Project', 'my-project'],
  ['--x--', 'x'],
  ['Ünïcode', 'n-code'],
  ['日本語', 'project'],
  ['', 'project'],
])('the profile of the folder %j is called %s', (folder, name) => {
  expect(profileNameFor(folder)).toBe(name);
});
