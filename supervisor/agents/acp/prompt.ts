import { isUtf8 } from 'node:buffer';
import type { ContentBlock } from '@agentclientprotocol/sdk';
import type { Attachment } from '../../../protocol/attachments.ts';
import { imageFacts } from '../../../protocol/image-type.ts';
import { type PromptFiles, nameOf, pathInSandbox } from '../prompt-files.ts';
import type { AcpState } from './state.ts';

/** Bytes of the pictures of one prompt that are part of its message, and of one of them. Models take no larger ones. */
const INLINE_IMAGES = { one: 4 * 2 ** 20, all: 6 * 2 ** 20 } as const;
/** The same for texts: a longer one would fill the agent's context, so the agent reads it where it is. */
const INLINE_TEXTS = { one: 64 * 2 ** 10, all: 256 * 2 ** 10 } as const;

export interface PromptedTurn {
  readonly id: string;
  readonly sessionId: string;
  readonly input: Buffer;
  readonly attachments: readonly Attachment[];
}

/** What the agent says that it takes. */
export interface PromptCapabilities {
  readonly image: boolean;
  readonly embed: boolean;
}

/**
 * The prompt of a turn as the protocol has it. Every file is also put where the agent can read it: a picture is part of the message
 * where the agent takes pictures, a short text where it takes embedded resources, and everything else is a link to its file. Errors:
 * those of `PromptFiles`.
 */
export async function promptBlocks(
  { id, sessionId, input, attachments }: PromptedTurn,
  can: PromptCapabilities,
  files: Pick<PromptFiles, 'read' | 'place'>,
): Promise<ContentBlock[]> {
  const text = input.toString('utf8');
  if (attachments.length === 0) return [textBlock(text)];
  await files.place(sessionId, id, attachments);
  const room = { images: INLINE_IMAGES.all, texts: INLINE_TEXTS.all };
  const blocks = attachments.map((one): ContentBlock => {
    const uri = fileUri(pathInSandbox(id, one));
    const link: ContentBlock = { type: 'resource_link', uri, name: nameOf(one) };
    if (one.kind === 'link') return link;
    const { bytes: size, mediaType } = one.content;
    const described = { ...link, mimeType: mediaType, size };
    if (one.kind === 'image' && can.image && size <= Math.min(INLINE_IMAGES.one, room.images)) {
      const bytes = files.read(sessionId, one);
      const facts = imageFacts(bytes);
      if (facts === null) return described;
      room.images -= size;
      return { type: 'image', data: bytes.toString('base64'), mimeType: facts.mediaType, uri };
    }
    if (one.kind === 'file' && can.embed && size <= Math.min(INLINE_TEXTS.one, room.texts)) {
      const bytes = files.read(sessionId, one);
      if (!isUtf8(bytes) || bytes.includes(0)) return described;
      room.texts -= size;
      return { type: 'resource', resource: { uri, mimeType: 'text/plain', text: bytes.toString('utf8') } };
    }
    return described;
  });
  return [...(text === '' ? [] : [textBlock(text)]), ...blocks];
}

/** What a turn that goes on beyond its budget tells the agent. */
const GO_ON =
  'Go on where you stopped. You were interrupted because a budget was used up; a person has raised it.';

/** What is sent now: the prompt of the turn, or, to an agent that has begun with it, that it is to go on. `history`: the conversation so far. */
export function promptOf(
  { turn, connection }: Pick<AcpState, 'turn' | 'connection'>,
  prompt: readonly ContentBlock[],
  history: string | null,
): ContentBlock[] {
  const knowsPrompt = connection?.how !== 'new' && connection?.how !== 'handover';
  return [
    ...(history === null ? [] : [textBlock(history)]),
    ...(turn?.isContinuing === true && knowsPrompt ? [] : prompt),
    ...(turn?.isContinuing === true ? [textBlock(GO_ON)] : []),
  ];
}

function textBlock(text: string): ContentBlock {
  return { type: 'text', text };
}

/** Of an absolute path, whatever its bytes. */
function fileUri(path: Buffer): string {
  const encoded = [...path].map((byte) => {
    const character = String.fromCharCode(byte);
    return /[\w.~/-]/.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  });
  return `file://${encoded.join('')}`;
}
