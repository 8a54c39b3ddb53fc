// Answers what the agents of a session ask until it waits for nothing more.     node examples/programs/answer-permissions.ts coder/default
import { newOpId, withHoldfast } from './connect.ts';

const [session = ''] = process.argv.slice(2);

await withHoldfast(async (client) => {
  const { permissions } = await client.call('permission/list', { session });
  for (const { id, kind, title } of permissions) {
    // What the title says is the agent's own account: decide by more than that.
    const answer = kind === 'read' || kind === 'search' ? 'allow_once' : 'reject_once';
    const { permission } = await client.call('permission/answer', {
      permission: id,
      answer,
      opId: newOpId(),
    });
    console.log(`${title}: ${permission.answer?.name ?? ''}`);
  }
});
