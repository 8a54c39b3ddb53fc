import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { configuredHosts } from '../../../hosts/ssh/ssh-config.ts';

function folderOf(files: Readonly<Record<string, string>>, { onTestFinished }: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-ssh-config-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'more'));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}

test('the hosts of the ssh configuration are its names without patterns', (context) => {
  const folder = folderOf(
    {
      config:
        'Host far gpu-box *.example.com !not "quoted"\n  User me\nhost=second\n# Host comment\nMatch host x\nHost far\n',
    },
    context,
  );
  expect(configuredHosts(join(folder, 'config'))).toEqual(['far', 'gpu-box', 'quoted', 'second']);
});

test('what it includes counts, also in a circle', (context) => {
  const folder = folderOf({ 'more/a': 'Host a\n', 'more/b': 'Host b\n' }, context);
  writeFileSync(join(folder, 'config'), `Include ${folder}/more/*\nInclude ${folder}/config\nHost c\n`);
  expect([...configuredHosts(join(folder, 'config'))].sort()).toEqual(['a', 'b', 'c']);
});

test('names that a shell or ssh could take for something else are left out', (context) => {
  const folder = folderOf({ config: 'Host -oProxyCommand=x $(id) a;b ok\n' }, context);
  expect(configuredHosts(join(folder, 'config'))).toEqual(['ok']);
});

test('without a configuration there are none', () => {
  expect(configuredHosts('/nonexistent/config')).toEqual([]);
});
