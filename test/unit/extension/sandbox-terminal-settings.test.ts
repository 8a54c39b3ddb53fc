import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import {
  SANDBOX_PROFILE,
  sandboxTerminalSettings,
} from '../../../extension/files/sandbox-terminal-settings.ts';

const ROOT = join(import.meta.dirname, '../../..');
const ManifestSchema = z.object({
  contributes: z.object({ terminal: z.object({ profiles: z.array(z.object({ title: z.string() })) }) }),
});

test('the default terminal profile in the settings of a session folder is the one that the extension contributes', () => {
  const manifest = ManifestSchema.parse(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')));
  const texts = z
    .record(z.string(), z.string())
    .parse(JSON.parse(readFileSync(join(ROOT, 'package.nls.json'), 'utf8')));
  const titles = manifest.contributes.terminal.profiles.map(({ title }) => texts[title.replaceAll('%', '')]);
  expect(titles).toEqual([SANDBOX_PROFILE]);
  const settings = sandboxTerminalSettings();
  for (const platform of ['linux', 'osx', 'windows']) {
    expect(settings[`terminal.integrated.defaultProfile.${platform}`]).toBe(SANDBOX_PROFILE);
    const profiles = z
      .record(z.string(), z.null())
      .parse(settings[`terminal.integrated.profiles.${platform}`]);
    expect(Object.keys(profiles).length).toBeGreaterThan(3);
  }
});
