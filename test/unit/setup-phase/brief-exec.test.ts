import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { EngineExec } from '../../../supervisor/engine/port.ts';
import { hasGit } from '../../../supervisor/setup/clone.ts';

/** A fake engine: what runs there ends with `code`, or only with its container. */
function givenEngine(code?: number) {
  const ended = Promise.withResolvers<number | null>();
  if (code !== undefined) ended.resolve(code);
  const exec: EngineExec = {
    stdout: new PassThrough(),
    stderr: new PassThrough(),
    stdin: new PassThrough(),
    resize: () => Promise.resolve(),
    exited: ended.promise,
    detach: () => undefined,
  };
  const stopped: string[] = [];
  return {
    stopped,
    exec: () => Promise.resolve(exec),
    stopAgent: (id: string) => {
      stopped.push(id);
      return Promise.resolve();
    },
  };
}

test('an image is asked whether it has git', async () => {
  const { signal } = new AbortController();
  expect(await hasGit(givenEngine(0), 'setup-1', signal)).toBe(true);
  expect(await hasGit(givenEngine(127), 'setup-1', signal)).toBe(false);
});

test('an image whose shell hangs fails the setup, and its container ends', async () => {
  const engine = givenEngine();
  await expect(hasGit(engine, 'setup-1', new AbortController().signal, 20)).rejects.toMatchObject({
    code: 'setup_failed',
    why: expect.stringContaining('command -v git') as string,
  });
  expect(engine.stopped).toEqual(['setup-1']);
});

test('a cancel ends the question at once, and the container with it', async () => {
  const engine = givenEngine();
  const cancel = new AbortController();
  const asked = hasGit(engine, 'setup-1', cancel.signal);
  const reason = new HoldfastError('cancelled', 'cancelled');
  cancel.abort(reason);
  await expect(asked).rejects.toBe(reason);
  expect(engine.stopped).toEqual(['setup-1']);
});
