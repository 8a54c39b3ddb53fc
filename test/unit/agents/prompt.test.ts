import { expect, test } from 'vitest';
import type { Attachment } from '../../../protocol/attachments.ts';
import { promptBlocks } from '../../../supervisor/agents/acp/prompt.ts';
import { withPaths } from '../../../supervisor/agents/prompt-files.ts';
import { png } from '../../fixtures/images.ts';

const TURN = 'turn-aaaaaaaaaaaaaaaa';
const FOLDER = `/run/holdfast/attachments/${TURN}`;

function stored(kind: 'image' | 'file', name: string, bytes: Buffer, mediaType: string) {
  return {
    kind,
    name,
    content: { sha256: name.padEnd(64, '0'), bytes: bytes.length, mediaType },
    data: bytes,
  };
}
const picture = stored('image', 'a b.png', png(2, 2), 'image/png');
const notes = stored('file', 'notes.md', Buffer.from('# Notes'), 'text/plain; charset=utf-8');
const binary = stored('file', 'data.bin', Buffer.from([0, 1, 2]), 'application/octet-stream');
const link: Attachment = { kind: 'link', path: '/workspace/src/ä.ts' };
const files = [picture, notes, binary];

async function blocks(
  can: { image: boolean; embed: boolean },
  attachments: readonly Attachment[],
  input = 'Look',
) {
  const placed: string[] = [];
  const made = await promptBlocks(
    { id: TURN, sessionId: 'ses', input: Buffer.from(input), attachments },
    can,
    {
      read: (_session, { name }) => files.find((one) => one.name === name)?.data ?? Buffer.alloc(0),
      place: (_session, turn, all) => {
        placed.push(turn, ...all.map(({ kind }) => kind));
        return Promise.resolve();
      },
    },
  );
  return { made, placed };
}

test('an agent that takes pictures and texts gets them, and every file lies where it can read it', async () => {
  const { made, placed } = await blocks({ image: true, embed: true }, [...files, link]);
  expect(made).toEqual([
    { type: 'text', text: 'Look' },
    {
      type: 'image',
      data: picture.data.toString('base64'),
      mimeType: 'image/png',
      uri: `file://${FOLDER}/a%20b.png`,
    },
    {
      type: 'resource',
      resource: { uri: `file://${FOLDER}/notes.md`, mimeType: 'text/plain', text: '# Notes' },
    },
    {
      type: 'resource_link',
      uri: `file://${FOLDER}/data.bin`,
      name: 'data.bin',
      mimeType: 'application/octet-stream',
      size: 3,
    },
    { type: 'resource_link', uri: 'file:///workspace/src/%C3%A4.ts', name: 'ä.ts' },
  ]);
  expect(placed).toEqual([TURN, 'image', 'file', 'file', 'link']);
});

test('an agent that takes neither gets links', async () => {
  const { made } = await blocks({ image: false, embed: false }, [picture, notes], '');
  expect(made.map(({ type }) => type)).toEqual(['resource_link', 'resource_link']);
});

test('what is not what it says, and what is too much for a message, is a link', async () => {
  const lying = { ...picture, name: 'notes.md' };
  const large = Array.from({ length: 3 }, () => ({
    ...picture,
    content: { ...picture.content, bytes: 3 * 2 ** 20 },
  }));
  const { made } = await blocks({ image: true, embed: true }, [lying, ...large]);
  expect(made.map(({ type }) => type)).toEqual(['text', 'resource_link', 'image', 'image', 'resource_link']);
});

test('a program that takes text gets a line for each path, whatever the names', () => {
  const prompt = withPaths(Buffer.from('Look'), TURN, [
    notes,
    link,
    { kind: 'link', path: '/workspace/a\n- b' },
  ]);
  expect(prompt.toString()).toBe(
    `Look\n\nAttached files:\n- ${FOLDER}/notes.md\n- /workspace/src/ä.ts\n- "/workspace/a\\n- b"\n`,
  );
  expect(withPaths(Buffer.from('Look'), TURN, []).toString()).toBe('Look');
});
