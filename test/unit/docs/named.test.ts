import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { buildProgram } from '../../../cli/program.ts';
import { CHECK_SUBJECTS } from '../../../protocol/checks.ts';
import { CREDENTIAL_PRESETS } from '../../../protocol/credential-presets.ts';
import { EGRESS_REASONS } from '../../../protocol/egress.ts';
import { HANDOFF_TARGETS } from '../../../protocol/handoff.ts';
import { MANIFEST_REASONS } from '../../../protocol/manifest.ts';
import { PRESET_NAMES } from '../../../protocol/presets/names.ts';
import { RISKS } from '../../../protocol/risk.ts';
import { PACKAGE_HOSTS, PackagesSchema } from '../../../protocol/setup.ts';
import { SNAPSHOT_REASONS } from '../../../protocol/snapshots.ts';
import { LimitSchema } from '../../../sidecar/wire.ts';
import { sessionTools, type SessionToolsOptions } from '../../../supervisor/tools/session-tools.ts';

const ROOT = join(import.meta.dirname, '../../..');

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

const settings = Object.keys(
  z
    .object({
      contributes: z.object({ configuration: z.object({ properties: z.record(z.string(), z.unknown()) }) }),
    })
    .parse(JSON.parse(read('package.json'))).contributes.configuration.properties,
);
/** The options are kept for the calls, and nothing is called here. */
const tools = sessionTools({} as SessionToolsOptions).map(({ name }) => name);

/** Page → the names that it explains, each in backticks. Whoever adds one adds it there, too. */
const NAMES: readonly (readonly [page: string, names: readonly string[]])[] = [
  ['agent-tools.md', tools],
  ['cli.md', LimitSchema.options],
  ['editor.md', settings],
  ['egress.md', EGRESS_REASONS],
  ['handoff.md', HANDOFF_TARGETS],
  ['manifest.md', MANIFEST_REASONS],
  ['presets.md', PRESET_NAMES],
  ['review.md', [...RISKS, ...CHECK_SUBJECTS]],
  ['secrets.md', Object.keys(CREDENTIAL_PRESETS)],
  ['setup.md', [...Object.keys(PackagesSchema.shape), ...Object.keys(PACKAGE_HOSTS)]],
  ['snapshots.md', SNAPSHOT_REASONS],
];

test.each(NAMES)('docs/%s explains every name of its subject', (page, names) => {
  const text = read(`docs/${page}`);
  expect(names.length).toBeGreaterThan(0);
  expect(names.filter((name) => !text.includes(`\`${name}\``))).toEqual([]);
});

test('docs/cli.md names every command and every option', () => {
  const text = read('docs/cli.md');
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  const program = buildProgram({ ...streams, env: {} } as unknown as Parameters<typeof buildProgram>[0], () =>
    Promise.resolve(),
  );
  const pathOf = (command: Command): string =>
    command.parent === null ? '' : `${pathOf(command.parent)} ${command.name()}`.trim();
  const leaves = (command: Command): Command[] =>
    command.commands.length === 0 ? [command] : command.commands.flatMap(leaves);
  // `__complete` is for shells.
  const commands = leaves(program).filter((one) => !['help', '__complete'].includes(one.name()));
  expect(commands.length).toBeGreaterThan(80);
  const missing = commands.flatMap((command) => {
    const path = pathOf(command);
    const options = command.options
      .filter(
        ({ hidden, short, long }) => !hidden && ![short, long].some((flag) => flag && isNamed(text, flag)),
      )
      .map(({ flags }) => `${path} ${flags}`);
    return text.includes(path) ? options : [path, ...options];
  });
  expect(missing).toEqual([]);
});

/** Whether the flag is in the text, and not only as the beginning of another. */
function isNamed(text: string, flag: string): boolean {
  return new RegExp(`[\\s\`[]${flag}(?![a-z-])`).test(text);
}

test('docs/performance.md names every benchmark', () => {
  const text = read('docs/performance.md');
  const files = readdirSync(join(ROOT, 'bench')).filter((name) => name.endsWith('.ts') && name !== 'run.ts');
  const sources = files.map((name) => read(`bench/${name}`));
  // What others import or start is a part of them.
  const benchmarks = files.filter((name) => !sources.some((source) => source.includes(`${name}'`)));
  expect(benchmarks.length).toBeGreaterThan(10);
  expect(benchmarks.filter((name) => !text.includes(`bench/${name}`))).toEqual([]);
});
