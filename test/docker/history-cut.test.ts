import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const CutSchema = z.looseObject({
  seq: z.number(),
  events: z.number(),
  turns: z.number(),
  snapshots: z.number(),
});
const VerifiedSchema = z.looseObject({
  ok: z.boolean(),
  checkpoint: z.looseObject({ seq: z.number(), valid: z.boolean() }).nullable(),
  unproven: z.array(z.string()),
});
const SnapshotSchema = z.looseObject({ id: z.string() });

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
});
afterAll(async () => {
  await home.dispose();
});

const conversation = (session: string) => home.runOk(['session', 'show', session, '--conversation']);
const verify = async (session: string) =>
  VerifiedSchema.parse(await home.runJson(['session', 'verify', session]));

test('old events are cut from a session; it goes on, and so do its forks, its manifests and its copies', async () => {
  const project = await writeProject(home.projects, {
    'holdfast.yaml': 'name: cut\npersistence: persistent\nagent: { protocol: command, command: [sh] }\n',
  });
  await home.runOk(['deploy', project]);
  await home.runOk(['session', 'create', 'cut', '--name', 'main']);
  await home.runOk(['prompt', 'main', 'echo first > f; echo said the first']);
  const early = SnapshotSchema.parse(await home.runJson(['snapshot', 'create', 'main']));
  const old = join(home.projects, 'old.manifest.json');
  await home.runOk(['manifest', 'show', 'main', '--output', old]);
  expect(await home.runOk(['manifest', 'verify', old])).toContain('is still there and ends in');
  await home.runOk(['memory', 'set', 'main', 'use tabs']);
  await home.runOk(['prompt', 'main', 'echo second > f; echo said the second']);
  await home.runOk(['prompt', 'main', 'echo said the third']);

  const plan = CutSchema.parse(await home.runJson(['history', 'cut', 'main', '--keep', '6', '--dry-run']));
  expect(plan).toMatchObject({ turns: 2, dryRun: true });
  expect(await verify('main')).toMatchObject({ ok: true, checkpoint: null, unproven: [] });
  const asked = await home.run(['history', 'cut', 'main', '--keep', '6']);
  expect([asked.code, asked.stderr]).toEqual([expect.any(Number), expect.stringContaining('add --force')]);
  expect(asked.code).not.toBe(0);
  const neither = await home.run(['history', 'cut', 'main']);
  expect(neither.stderr).toContain('either --before or --keep');

  const said = await home.runOk(['history', 'cut', 'main', '--keep', '6', '--force']);
  expect(said).toContain(`Removed ${plan.events} events up to event ${plan.seq}`);
  const verified = await verify('main');
  expect(verified).toMatchObject({ ok: true, checkpoint: { seq: plan.seq, valid: true } });
  expect(verified.unproven).toHaveLength(3);
  const text = await conversation('main');
  expect(text).toContain('Earlier events were removed on ');
  expect(text).toContain('said the third');
  expect(text).not.toContain('said the first');
  expect(await home.runOk(['memory', 'show', 'main'])).toBe('use tabs\n');
  expect(await home.runOk(['prompt', 'main', 'cat f'])).toBe('second\n');
  // Turns that were removed keep their figures.
  expect(await home.runOk(['turn', 'list', 'main'])).toContain('succeeded');

  // An earlier manifest is valid, and nobody can recompute the chain that it names; a new one begins behind the cut.
  expect(await home.runOk(['manifest', 'verify', old])).toContain('nobody can recompute it');
  const file = join(home.projects, 'main.manifest.json');
  await home.runOk(['manifest', 'show', 'main', '--output', file]);
  expect(await home.runOk(['manifest', 'verify', file])).toContain('or had been removed');

  // A fork of a snapshot from before has its files, and no more of the history than is left.
  await home.runOk(['snapshot', 'fork', early.id, '--name', 'fork']);
  expect(await home.runOk(['prompt', 'fork', 'cat f'])).toBe('first\n');
  expect(await conversation('fork')).not.toContain('said the first');
  expect(await verify('fork')).toMatchObject({ ok: true, checkpoint: null });

  const bundle = join(home.projects, 'main.tar.zst');
  await home.runOk(['snapshot', 'export', 'main', bundle]);
  await home.runOk(['snapshot', 'import', 'cut', bundle, '--name', 'copy']);
  const copied = await conversation('copy');
  expect(copied).toContain('Earlier events were removed on ');
  expect(copied).toContain('said the third');
  expect(await verify('copy')).toMatchObject({ ok: true });
  expect(await home.runOk(['prompt', 'copy', 'cat f'])).toBe('second\n');
}, 180_000);
