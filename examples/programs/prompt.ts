// Prompts a session and prints what its agent says as it comes.     node examples/programs/prompt.ts coder/default 'Say hello'
import { newOpId, withHoldfast } from './connect.ts';

const [session = '', prompt = ''] = process.argv.slice(2);

await withHoldfast(async (client) => {
  const { turn } = await client.call('turn/start', { session, prompt, opId: newOpId() });
  const peer = await client.peer();
  /** Bytes of each message that are printed: text comes live first, and again when it is stored. */
  const printed = new Map<string, number>();
  const print = (message: string, offset: number, text: string): void => {
    const bytes = Buffer.from(text);
    const from = printed.get(message) ?? 0;
    if (offset + bytes.length <= from) return;
    process.stdout.write(bytes.subarray(Math.max(0, from - offset)));
    printed.set(message, offset + bytes.length);
  };
  peer.onNotification('conversation/chunk', ({ turnId, role, message, offset, text }) => {
    if (turnId === turn.turnId && role === 'agent') print(String(message), offset, text);
  });
  const ended = new Promise<void>((resolve) => {
    peer.onNotification('conversation/changed', ({ items }) => {
      for (const item of items.filter(({ turnId }) => turnId === turn.turnId)) {
        if (item.type === 'message' && item.role === 'agent')
          print(String(item.message), item.start, item.text ?? '');
        if (item.type === 'end') resolve();
      }
    });
  });
  // From the first event on: the agent may have answered already.
  await client.call('conversation/subscribe', { session, after: 0 });
  await Promise.race([ended, peer.closed]);
  const { turn: done } = await client.call('turn/wait', { turn: turn.turnId });
  console.log(`\n${done.status}`);
});
