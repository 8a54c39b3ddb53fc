// Lists the workspace of a session, and prints one of its files.     node examples/programs/read-files.ts coder/default /workspace/notes.txt
import { withHoldfast } from './connect.ts';

const [session = '', path = ''] = process.argv.slice(2);
const CHUNK = 1024 * 1024;

await withHoldfast(async (client) => {
  const { entries } = await client.call('files/list', { session, path: '/workspace' });
  for (const { name, type } of entries) console.error(`${type} ${name}`);

  let offset = 0;
  let ifVersion: string | undefined;
  for (;;) {
    // With the version of the first part, the others belong to the same content; `conflict` says that it has changed.
    const { result, bytes } = await client.callWithBytes('files/read', {
      ...{ session, path, offset, length: CHUNK },
      ...(ifVersion === undefined ? {} : { ifVersion }),
    });
    process.stdout.write(bytes);
    ifVersion = result.version;
    offset += bytes.length;
    if (bytes.length === 0 || offset >= result.size) return;
  }
});
