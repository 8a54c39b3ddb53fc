import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { EngineRefusal } from '../../../supervisor/engine/docker/errors.ts';
import type { HelperCommand } from '../../../supervisor/engine/docker/helper-containers.ts';
import { LocalPathsProbe } from '../../../supervisor/engine/docker/local-paths.ts';
import { InfoReply } from '../../../supervisor/engine/docker/replies.ts';

const INFO = InfoReply.parse({ ID: 'engine' });

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'holdfast-local-paths-'));
});
afterEach(() => {
  rmSync(home, { recursive: true });
});

/** A fake of the helper containers: no real engine can be given other error texts on demand. */
function refusing(refuses: (command: HelperCommand, call: number) => boolean) {
  const calls: number[] = [];
  const run = (command: HelperCommand): Promise<void> => {
    calls.push(command.mounts.length);
    return refuses(command, calls.length)
      ? Promise.reject(new EngineRefusal(command.what, 400, 'dossier inconnu'))
      : Promise.resolve();
  };
  return { calls, run };
}

describe('whether an engine sees local paths', () => {
  test('is denied by one that refuses the mount, whatever the text of the error', async () => {
    const helpers = refusing(({ mounts }) => mounts.length > 0);
    expect(await new LocalPathsProbe(home, helpers).detect(INFO)).toBe(false);
    expect(helpers.calls).toEqual([1, 0, 1, 0]);
    expect(new LocalPathsProbe(home, helpers).guess(INFO)).toBe(false);
  });

  test('stays open if the engine runs no container at all', async () => {
    const helpers = refusing(() => true);
    await expect(new LocalPathsProbe(home, helpers).detect(INFO)).rejects.toThrow('dossier inconnu');
    expect(helpers.calls).toEqual([1, 0]);
  });

  test('is probed again before a refusal counts', async () => {
    const helpers = refusing((_command, call) => call === 1 || call > 3);
    await expect(new LocalPathsProbe(home, helpers).detect(INFO)).resolves.toBe(false);
    expect(helpers.calls).toEqual([1, 0, 1]);
  });
});
