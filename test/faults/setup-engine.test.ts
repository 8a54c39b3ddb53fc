import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const isRoot = process.getuid?.() === 0;

/**
 * A machine without an engine: mounts, network and processes of its own, so that whatever is started in it ends with it and
 * the engine of this machine is out of reach.
 */
describe.skipIf(!isRoot)('setting up an engine where none answers (needs root)', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-no-engine-'));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  function onMachineWithoutEngine(script: string): Promise<string> {
    const prepare = `set -eu
      mount -t tmpfs tmpfs /run
      mkdir -p ${folder}/data ${folder}/log
      mount --bind ${folder}/data /var/lib/docker
      mount --bind ${folder}/log /var/log
      ip link set lo up
      cd ${ROOT}
      export HOLDFAST_HOME=${folder}/home
      unset DOCKER_HOST DOCKER_CONTEXT
      export DOCKER_CONFIG=${folder}
      engine() { node scripts/engine.mjs "$@" 2>&1 || echo "failed with $?"; }
      `;
    const args = [
      '--mount',
      '--net',
      '--pid',
      '--fork',
      '--mount-proc',
      '--kill-child',
      '--propagation',
      'private',
    ];
    return new Promise((resolve, reject) => {
      execFile('unshare', [...args, 'bash', '-c', prepare + script], (error, stdout, stderr) => {
        if (error === null) resolve(stdout);
        else reject(new Error(`${stdout}${stderr}`, { cause: error }));
      });
    });
  }

  test('it is started once, answers, and is stopped by the one who started it', async () => {
    const said = await onMachineWithoutEngine(`
      engine start; engine start
      echo "engines: $(pgrep -xc dockerd)"
      engine stop
      echo "engines: $(pgrep -x dockerd -r S,R,D | wc -l)"
      engine stop`);
    expect(said).toMatch(
      /starting dockerd[^]*answers at \/var\/run\/docker\.sock[^]*answers at[^]*engines: 1\n/,
    );
    expect(said.match(/starting dockerd/g)).toHaveLength(1);
    expect(said).toMatch(
      /the engine \(process \d+\) is stopped\nengines: 0\nno engine was started by Holdfast/,
    );
  });

  test('a process that only has the number of our engine is left alone', async () => {
    const said = await onMachineWithoutEngine(`
      sleep 60 & other=$!
      echo "{\\"pid\\":$other,\\"startedAt\\":\\"1\\",\\"systemd\\":false}" >/run/holdfast-engine.json
      engine stop
      kill -0 $other && echo "still there"
      kill $other`);
    expect(said).toBe('the engine that Holdfast started is not running any more\nstill there\n');
  });

  test('an engine that dies at its start is a clear error that names its log', async () => {
    const said = await onMachineWithoutEngine(`
      mkdir -p /run/fake; printf '#!/bin/sh\\nexit 3\\n' >/run/fake/dockerd; chmod +x /run/fake/dockerd
      PATH=/run/fake:$PATH
      engine start`);
    expect(said).toContain('dockerd did not come up: it ended with 3');
    expect(said).toContain('/var/log/holdfast-dockerd.log');
    expect(said).toContain('failed with 1');
  });

  test('an engine that somebody named is never replaced by one of ours', async () => {
    const said = await onMachineWithoutEngine(`
      DOCKER_HOST=unix:///run/nobody.sock engine start
      echo "engines: $(pgrep -xc dockerd)"`);
    expect(said).toContain('the Docker engine that DOCKER_HOST names does not answer at /run/nobody.sock');
    expect(said).toContain('engines: 0');
  });
});
