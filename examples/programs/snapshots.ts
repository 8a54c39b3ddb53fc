// Takes a snapshot, and restores it after something has gone wrong.     node examples/programs/snapshots.ts coder/default 'rm -rf src'
import { newOpId, withHoldfast } from './connect.ts';

const [session = '', prompt = ''] = process.argv.slice(2);

await withHoldfast(async (client) => {
  const label = 'before an experiment';
  const before = await client.call('snapshot/create', { session, label, opId: newOpId() });
  const { turn } = await client.call('turn/start', { session, prompt, opId: newOpId() });
  await client.call('turn/wait', { turn: turn.turnId });
  // `undo` is a snapshot of what the restore replaced: nothing is lost either way.
  const restored = await client.call('snapshot/restore', { session, snapshot: before.id, opId: newOpId() });
  console.log(`restored ${restored.snapshot}; ${restored.undo ?? 'nothing'} undoes it`);
});
