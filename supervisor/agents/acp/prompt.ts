import type { ContentBlock } from '@agentclientprotocol/sdk';

/** The prompt of a turn as the protocol has it. */
export function promptBlocks(input: Buffer): ContentBlock[] {
  return [{ type: 'text', text: input.toString('utf8') }];
}
