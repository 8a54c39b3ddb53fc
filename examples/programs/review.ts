// Reviews what an agent changed: accepts what carries no risk, and leaves the rest to a person.     node examples/programs/review.ts coder/default
import { newOpId, withHoldfast } from './connect.ts';

const [session = ''] = process.argv.slice(2);

await withHoldfast(async (client) => {
  await client.call('review/open', { session });
  let cursor: string | undefined;
  do {
    const page = await client.call('review/files', { session, ...(cursor === undefined ? {} : { cursor }) });
    for (const { path, id, kind, risks, state } of page.files) {
      const isSafe = risks.length === 0 && state === 'to-review';
      // `seen` is what this program has looked at: a file that has changed since is a `conflict`.
      const decisions = [{ path, seen: id }];
      if (isSafe)
        await client.call('review/decide', { session, verdict: 'accept', decisions, opId: newOpId() });
      console.log(`${isSafe ? 'accepted' : 'for a person'}: ${kind} ${path} ${risks.join(', ')}`.trim());
    }
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
});
