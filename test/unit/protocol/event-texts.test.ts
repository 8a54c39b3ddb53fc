import { expect, test } from 'vitest';
import { z } from 'zod';
import { EVENT_TYPES, withoutPromptText } from '../../../protocol/events.ts';

/** Names that a field with a prompt or an output would have. */
const TEXT = /^(about|base64|body|excerpt|input|output|preview|prompt|summary|text)$/;
/** Fields of earlier versions, which readers still take; and what our own code says to a person. */
const KNOWN = [
  'session.updated.about',
  'turn.queued.preview',
  'turn.edited.preview',
  'turn.output.text',
  'turn.output.base64',
  'turn.ended.output',
  'agent.notice.text',
];

const SchemaSchema = z.looseObject({
  type: z.union([z.string(), z.array(z.string())]).optional(),
  properties: z.record(z.string(), z.json()).optional(),
  required: z.array(z.string()).optional(),
  items: z.json().optional(),
  anyOf: z.array(z.json()).optional(),
  oneOf: z.array(z.json()).optional(),
});

/** Every field of an event, with whether it may be left out. */
function* fieldsOf(
  json: unknown,
  path: string,
): Generator<{ name: string; path: string; optional: boolean }> {
  const schema = SchemaSchema.safeParse(json).data;
  if (schema === undefined) return;
  const { properties = {}, required = [], items, anyOf = [], oneOf = [] } = schema;
  for (const [name, field] of Object.entries(properties)) {
    yield { name, path: `${path}.${name}`, optional: !required.includes(name) };
    yield* fieldsOf(field, `${path}.${name}`);
  }
  for (const one of [items, ...anyOf, ...oneOf]) yield* fieldsOf(one, path);
}

test('no event has a field for a prompt or an output, but those of earlier versions', () => {
  const fields = Object.entries(EVENT_TYPES).flatMap(([type, { data: schema }]) => [
    ...fieldsOf(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }), type),
  ]);
  expect(fields.length).toBeGreaterThan(200);
  const texts = fields.filter(({ name }) => TEXT.test(name));
  expect(texts.map(({ path }) => path).toSorted()).toEqual(KNOWN.toSorted());
  // A new event leaves them out.
  expect(texts.filter(({ optional }) => !optional).map(({ path }) => path)).toEqual(['agent.notice.text']);
});

test('a copy of an old event has no text of a prompt whose content it names', () => {
  const content = { sha256: 'a'.repeat(64), bytes: 1, mediaType: 'text/plain' };
  expect(withoutPromptText('turn.queued', { turnId: 't', preview: 'x', content })).toEqual({
    turnId: 't',
    content,
  });
  expect(withoutPromptText('session.updated', { about: 'x', pinned: true })).toEqual({ pinned: true });
  // A prompt from before there were contents is nowhere else.
  const old = { turnId: 't', preview: 'x', content: null };
  expect(withoutPromptText('turn.queued', old)).toEqual(old);
  expect(withoutPromptText('agent.notice', { text: 'x' })).toEqual({ text: 'x' });
});
