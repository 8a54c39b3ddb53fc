import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { EngineExec } from '../../../supervisor/engine/port.ts';
import { writeSecretFile } from '../../../supervisor/engine/setup-programs.ts';
import { hasGit } from '../../../supervisor/setup/clone.ts';
import { requireStarts } from '../../../supervisor/setup/image-trial.ts';
import { sandboxOf } from '../../../supervisor/setup/setup-sandbox.ts';
import { silent } from '../../egress-harness/in-process-egress.ts';

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

describe('a secret of a setup', () => {
  const secret = { name: 'TOKEN', value: Buffer.from('a value of the secret') };
  const placeOf = (engine: ReturnType<typeof givenEngine>) => ({
    start: () => engine.exec(),
    end: () => engine.stopAgent('setup-1'),
  });

  test('that cannot be written in time fails the setup, and its container ends', async () => {
    const engine = givenEngine();
    const writing = writeSecretFile(placeOf(engine), secret, new AbortController().signal, 20);
    await expect(writing).rejects.toMatchObject({ code: 'setup_failed' });
    expect(engine.stopped).toEqual(['setup-1']);
  });

  test('is no longer waited for after a cancel, whether or not the container ends', async () => {
    const engine = givenEngine();
    const place = { ...placeOf(engine), end: () => Promise.reject(new Error('the engine refuses')) };
    const cancel = new AbortController();
    const writing = writeSecretFile(place, secret, cancel.signal);
    const reason = new HoldfastError('cancelled', 'cancelled');
    cancel.abort(reason);
    await expect(writing).rejects.toBe(reason);
  });
});

test('a cancel ends the trial of an image in which nothing answers, and the log does not blame the image', async () => {
  const row = {
    id: 'setup-1',
    profile: 'p',
    backing: 'directory',
    uid: 1,
    gid: 1,
    hasCommands: false,
  } as const;
  const cancel = new AbortController();
  const lines: string[] = [];
  const asked = Promise.withResolvers<undefined>();
  const options = {
    engine: {
      startSandbox: () => Promise.resolve(),
      removeSandbox: () => Promise.resolve(),
      removeObject: () => Promise.resolve(),
    },
    // A fake runner that never answers: its connection breaks when the setup is cancelled.
    takesRequests: (_id: string, signal: AbortSignal) =>
      new Promise<boolean>((_resolve, reject) => {
        asked.resolve(undefined);
        signal.addEventListener('abort', () => reject(new Error('the connection is closed')), { once: true });
      }),
    log: silent,
  };
  const spec = sandboxOf(row, { name: 'p', runtime: 'default' });
  const trial = requireStarts(options, row.id, spec, (line) => lines.push(line), cancel.signal);
  await asked.promise;
  const reason = new HoldfastError('cancelled', 'cancelled');
  cancel.abort(reason);
  await expect(trial).rejects.toBe(reason);
  expect(lines).toEqual([]);
});
