import { createHash } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { AttachmentRef } from '../../../protocol/attachments.ts';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import { turnOutput } from '../harness/expectations.ts';
import { waitForTurn, waitUntil } from '../harness/fault-fixture.ts';
import type { FaultHome } from '../harness/fault-home.ts';
import {
  createSession,
  expectConsistent,
  expectKilledDuring,
  retryRequest,
  sharedHome,
  startNextSupervisor,
  startWithFailpoint,
  uniqueName,
} from './fixture.ts';

const PART = 2 ** 20;
const NAME = 'picture.bin';

/**
 * The supervisor dies in the middle of an upload, before or after the upload is committed, or when the file is in the sandbox and its
 * prompt is not sent. The client uploads again from the start, and the turn finds the file whole, once.
 */
export async function attachmentScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  const session = await createSession(at);
  const bytes = Buffer.alloc(2 * PART + 12_345, uniqueName('bytes '));
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  if (point !== 'attachment.after-place') {
    await expectKilledDuring(at, point, () => upload(at, session, bytes));
    await startNextSupervisor(at);
    const isCommitted = point === 'attachment.after-commit';
    const ref: AttachmentRef = { content: sha256, name: NAME };
    const found = await at.call('content/read', { session, id: sha256, offset: 0, limit: 1 }).then(
      ({ total }) => total,
      () => null,
    );
    expect(found).toBe(isCommitted ? bytes.length : null);
    if (!isCommitted) {
      // Its first parts are gone, and so are the bytes that had reached a file.
      await expect(part(at, session, 'one', bytes, PART)).rejects.toMatchObject({ code: 'not_found' });
      await expect(
        at.call('turn/start', { session, prompt: 'true', attachments: [ref] }),
      ).rejects.toMatchObject({
        code: 'not_found',
      });
      await waitUntil('nothing of the upload is left', () => storedBytes(at, session) === 0);
    }
  }
  await upload(at, session, bytes);
  expect(storedBytes(at, session)).toBe(bytes.length);

  const request = {
    session,
    prompt: `echo ran >> runs; cat /run/holdfast/attachments/*/${NAME} | sha256sum; exit`,
    attachments: [{ content: sha256, name: NAME }],
    opId: uniqueName('op-attached'),
  };
  if (point === 'attachment.after-place') {
    const { died } = await startWithFailpoint(at, point);
    await at.call('turn/start', request).catch(() => undefined);
    await died();
    await startNextSupervisor(at);
  }
  const { turn } = await retryRequest(at, 'turn/start', request);
  expect(await waitForTurn(at, turn.turnId)).toMatchObject({ status: 'succeeded' });
  expect((await turnOutput(at, turn.turnId, 'stdout')).toString()).toBe(`${sha256}  -\n`);
  expect(statSync(join(at.path, 'workspaces', session, 'runs')).size).toBe('ran\n'.length);
  expect(storedBytes(at, session)).toBe(bytes.length);
  await expectConsistent(at, session);
}

/** As a client does: a part at a time, each with a request of its own. */
async function upload(at: FaultHome, session: string, bytes: Buffer): Promise<void> {
  const name = uniqueName('upload');
  for (let offset = 0; offset < bytes.length; offset += PART) await part(at, session, name, bytes, offset);
}

async function part(
  at: FaultHome,
  session: string,
  name: string,
  bytes: Buffer,
  offset: number,
): Promise<void> {
  const params = { session, upload: name, offset, total: bytes.length };
  await at.call('attachment/upload', params, bytes.subarray(offset, offset + PART));
}

/** Bytes of attachments in the files of a session. */
function storedBytes(at: FaultHome, session: string): number {
  const directory = join(at.path, 'artifacts', session);
  try {
    return readdirSync(directory)
      .filter((file) => file.startsWith('attachment-'))
      .reduce((sum, file) => sum + statSync(join(directory, file)).size, 0);
  } catch {
    return 0;
  }
}
