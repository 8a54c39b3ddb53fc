import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const StartedSchema = z.object({ turnId: z.string(), sessionId: z.string() });
const IdSchema = z.object({ id: z.string() });
const ShownSchema = z.object({ session: z.object({ about: z.string() }) });
const ItemSchema = z.looseObject({
  type: z.string(),
  text: z.string().nullable(),
  preview: z.string().optional(),
});
const EventSchema = z.looseObject({
  seq: z.number(),
  type: z.string(),
  data: z.record(z.string(), z.json()),
});

/** Each is in a prompt, an answer or the memory, and in nothing else. */
const WORDS = ['quetzal', 'ocelot', 'tapir', 'kinkajou', 'axolotl', 'capybara'];

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
});
afterAll(async () => {
  await home.dispose();
});

const lines = <T>(schema: z.ZodType<T>, text: string): T[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => schema.parse(JSON.parse(line)));
const eventsOf = async (session: string) =>
  lines(EventSchema, await home.runOk(['session', 'events', session, '--json']));
const promptsOf = async (session: string) =>
  lines(ItemSchema, await home.runOk(['session', 'show', session, '--conversation', '--json']))
    .filter(({ type }) => type === 'prompt')
    .map(({ preview }) => preview);

const aboutOf = async (session: string) =>
  ShownSchema.parse(await home.runJson(['session', 'show', session])).session.about;

/** No event has one of the words. Returns the types. */
async function expectNoWords(session: string): Promise<string[]> {
  const events = await eventsOf(session);
  const found = events.filter((event) => WORDS.some((word) => JSON.stringify(event).includes(word)));
  expect(found).toEqual([]);
  return [...new Set(events.map(({ type }) => type))];
}

test('events name prompts and answers and have none of their text, in a session, its fork and its import', async () => {
  const project = await writeProject(home.projects, {
    'holdfast.yaml': 'name: texts\npersistence: persistent\nagent: { protocol: command, command: [sh] }\n',
  });
  await home.runOk(['deploy', project]);
  await home.runOk(['session', 'create', 'texts', '--name', 'default']);
  // The first prompt waits until the queue behind it is complete.
  const first = 'while [ ! -e go ]; do sleep 0.1; done; : quetzal; for w in oce; do echo "${w}lot"; done';
  const { turnId, sessionId } = StartedSchema.parse(
    await home.runJson(['prompt', 'texts/default', first, '--no-wait']),
  );
  const queue = async (prompt: string) =>
    StartedSchema.parse(await home.runJson(['prompt', sessionId, prompt, '--no-wait'])).turnId;
  const second = await queue(': tapir');
  const third = await queue(': kinkajou; exit 3');
  await home.runOk(['turn', 'edit', second, ': axolotl; echo done']);
  await home.runOk(['exec', sessionId, '--', 'touch', 'go']);
  for (const id of [turnId, second, third]) await home.run(['turn', 'wait', id]);
  await home.runOk(['memory', 'set', sessionId, 'the capybara prefers tabs']);

  expect(await expectNoWords(sessionId)).toEqual(
    expect.arrayContaining(['turn.queued', 'turn.edited', 'turn.output', 'turn.ended', 'memory.changed']),
  );
  const prompts = [first, ': axolotl; echo done', ': kinkajou; exit 3'];
  expect(await promptsOf(sessionId)).toEqual(prompts);
  const about = await aboutOf(sessionId);
  expect(about).toBe(`${first.slice(0, 79)}…`);

  const snapshot = IdSchema.parse(await home.runJson(['snapshot', 'create', sessionId]));
  await home.runOk(['snapshot', 'fork', snapshot.id, '--name', 'fork']);
  const file = join(home.projects, 'texts.tar.zst');
  await home.runOk(['snapshot', 'export', sessionId, file]);
  await home.runOk(['snapshot', 'import', 'texts', file, '--name', 'copy']);
  for (const copy of ['fork', 'copy']) {
    await expectNoWords(copy);
    expect(await promptsOf(copy)).toEqual(prompts);
    expect(await aboutOf(copy)).toBe(about);
  }
}, 120_000);
