import { expect } from 'vitest';
import type { FailpointName } from '../../../supervisor/base/failpoints.ts';
import {
  createSession,
  expectConsistent,
  expectKilledDuring,
  retryRequest,
  runTurn,
  sharedHome,
  startNextSupervisor,
  uniqueName,
  variants,
} from './fixture.ts';

/** Two files are rejected; the supervisor dies between the decision and the end of what it writes. */
export async function reviewScenario(point: FailpointName): Promise<void> {
  const at = await sharedHome();
  for (const profile of variants(point, ['shell', 'volume'])) {
    const id = await createSession(at, profile);
    await runTurn(at, id, 'mkdir -p d; echo one > d/a; echo two > b');
    await at.call('snapshot/create', { session: id });
    await runTurn(at, id, 'echo changed >> d/a; echo changed >> b; echo new > c');
    const { turns } = await at.call('turn/list', { session: id });
    const last = turns.find(({ snapshot }) => snapshot !== null)?.turnId ?? '';
    await at.call('review/open', { session: id, base: `turn:${last}` });
    const { files } = await at.call('review/files', { session: id });
    expect(files.map(({ path }) => path)).toEqual(['/workspace/b', '/workspace/c', '/workspace/d/a']);
    const decisions = files
      .filter(({ path }) => path !== '/workspace/c')
      .map(({ path, id: seen }) => ({ path, seen }));
    const opId = uniqueName('op-review');
    const request = { session: id, verdict: 'reject' as const, decisions, opId };
    await expectKilledDuring(at, point, () => at.call('review/decide', request));
    await startNextSupervisor(at);
    const { review, decided } = await retryRequest(at, 'review/decide', request);
    expect(decided).toBe(2);
    expect(review.counts).toMatchObject({ rejected: 2, toReview: 1 });
    expect(await runTurn(at, id, 'cat d/a b c')).toBe('one\ntwo\nnew\n');
    await at.call('review/undo', { session: id });
    expect(await runTurn(at, id, 'cat d/a b c')).toBe('one\nchanged\ntwo\nchanged\nnew\n');
    await expectConsistent(at, id);
  }
}
