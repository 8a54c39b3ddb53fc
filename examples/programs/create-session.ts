// Creates a session of a profile, and prints its id.     node examples/programs/create-session.ts coder invoices
import { newOpId, withHoldfast } from './connect.ts';

const [profile = '', name = 'default'] = process.argv.slice(2);

await withHoldfast(async (client) => {
  const { session } = await client.call('session/create', { profile, name, opId: newOpId() });
  console.log(session.id);
});
