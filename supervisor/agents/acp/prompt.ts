import type { ContentBlock } from '@agentclientprotocol/sdk';
import type { AcpState } from './state.ts';

/** The prompt of a turn as the protocol has it. */
export function promptBlocks(input: Buffer): ContentBlock[] {
  return [textBlock(input.toString('utf8'))];
}

/** What a turn that goes on beyond its budget tells the agent. */
const GO_ON =
  'Go on where you stopped. You were interrupted because a budget was used up; a person has raised it.';

/** What is sent now: the prompt of the turn, or, to an agent that has begun with it, that it is to go on. `told`: the conversation so far. */
export function promptOf(
  { turn, connection }: Pick<AcpState, 'turn' | 'connection'>,
  prompt: readonly ContentBlock[],
  told: string | null,
): ContentBlock[] {
  const knowsPrompt = connection?.how !== 'new' && connection?.how !== 'handover';
  return [
    ...(told === null ? [] : [textBlock(told)]),
    ...(turn?.isContinuing === true && knowsPrompt ? [] : prompt),
    ...(turn?.isContinuing === true ? [textBlock(GO_ON)] : []),
  ];
}

function textBlock(text: string): ContentBlock {
  return { type: 'text', text };
}
