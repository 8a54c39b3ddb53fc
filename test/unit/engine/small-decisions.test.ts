import { describe, expect, test } from 'vitest';
import { accountFiles } from '../../../supervisor/engine/docker/container-options.ts';
import { negotiateApiVersion } from '../../../supervisor/engine/docker/connection.ts';
import {
  toHoldfastError,
  EngineRefusal,
  engineUnavailable,
} from '../../../supervisor/engine/docker/errors.ts';
import { PullTally, withTag } from '../../../supervisor/engine/docker/images.ts';
import { missingImageError } from '../../../supervisor/engine/docker/helper-containers.ts';
import { Naming } from '../../../supervisor/engine/docker/labels.ts';
import { specHashes } from '../../../supervisor/engine/docker/spec-hash.ts';
import type { SandboxSpec } from '../../../supervisor/engine/port.ts';

const sessionId = 'ses-abcdefghijklmnop';
const spec: SandboxSpec = {
  sessionId,
  generation: 1,
  image: 'image:1',
  uid: 1000,
  gid: 1000,
  workspace: { sessionId, backing: 'directory', uid: 1000, gid: 1000 },
  code: { profile: 'p', version: 1 },
  env: { A: '1', B: '2' },
  limits: { memoryBytes: 1, cpus: 1, pids: 1 },
  runtime: 'default',
};

describe('the hash of a spec', () => {
  const of = (
    change: Partial<SandboxSpec>,
    programs = 'p',
    image = 'side',
  ): { sidecar: string; agent: string } => specHashes({ ...spec, ...change }, image, programs);
  const base = of({});

  test('does not depend on the generation or the order of the environment', () => {
    expect(of({ generation: 9, env: { B: '2', A: '1' } })).toEqual(base);
  });

  test.each<[string, Partial<SandboxSpec>]>([
    ['image', { image: 'image:2' }],
    ['code version', { code: { profile: 'p', version: 2 } }],
    ['limits', { limits: { memoryBytes: 2, cpus: 1, pids: 1 } }],
    ['environment', { env: { A: '1' } }],
  ])('a new %s changes the agent’s hash, not the sidecar’s', (_what, change) => {
    expect(of(change).agent).not.toBe(base.agent);
    expect(of(change).sidecar).toBe(base.sidecar);
  });

  test('a new uid, runtime or program changes both; a new sidecar image only the sidecar’s', () => {
    for (const other of [of({ uid: 7 }), of({ runtime: 'runsc' }), of({}, 'q')]) {
      expect(other.agent).not.toBe(base.agent);
      expect(other.sidecar).not.toBe(base.sidecar);
    }
    expect(of({}, 'p', 'side2')).toEqual({
      agent: base.agent,
      sidecar: expect.not.stringMatching(base.sidecar) as string,
    });
  });
});

describe('pulling', () => {
  test('a name without a tag means the latest', () => {
    expect(withTag('debian')).toBe('debian:latest');
    expect(withTag('localhost:5000/debian')).toBe('localhost:5000/debian:latest');
    expect(withTag('localhost:5000/debian:12')).toBe('localhost:5000/debian:12');
    expect(withTag(`debian@sha256:${'0'.repeat(64)}`)).toMatch(/@sha256:0+$/);
  });

  test('the progress of layers is summed up', () => {
    const tally = new PullTally();
    expect(tally.add({ status: 'Pulling from library/debian', id: '12' })).toMatchObject({
      doneBytes: 0,
      totalBytes: null,
    });
    const of = (id: string, status: string, current?: number, total?: number): ReturnType<PullTally['add']> =>
      tally.add({ id, status, progressDetail: { current, total } });
    of('aaaaaaaaaaaa', 'Downloading', 10, 100);
    expect(of('bbbbbbbbbbbb', 'Downloading', 5, 50)).toEqual({
      doneBytes: 15,
      totalBytes: 150,
      status: 'Downloading',
    });
    expect(of('aaaaaaaaaaaa', 'Download complete')).toMatchObject({ doneBytes: 105, totalBytes: 150 });
    // Progress of extraction has other units and must not decrease the sum.
    expect(of('aaaaaaaaaaaa', 'Extracting', 3, 9000)).toMatchObject({ doneBytes: 105, totalBytes: 150 });
  });
});

describe('the version of the API', () => {
  const of = (ApiVersion: string, MinAPIVersion?: string): string =>
    negotiateApiVersion({ Version: '1', ApiVersion, MinAPIVersion });

  test('is the oldest sufficient one, so that all engines behave alike', () => {
    expect(of('1.41', '1.12')).toBe('1.41');
    expect(of('1.52', '1.24')).toBe('1.41');
    expect(of('1.41')).toBe('1.41');
  });

  test('is a later one if the engine has dropped ours; older engines are refused', () => {
    expect(of('1.52', '1.44')).toBe('1.44');
    expect(() => of('1.40')).toThrow(expect.objectContaining({ code: 'not_supported' }));
    expect(of('2.0', '1.9')).toBe('1.41');
  });
});

describe('names', () => {
  test('are DNS labels of at most 63 characters and differ between homes', () => {
    const one = new Naming('abcdefghijklmnopqrstuvwxyz');
    const other = new Naming('bbcdefghijklmnopqrstuvwxyz');
    expect(one.container(sessionId, 'agent')).toBe(`hf-abcdefgh-${sessionId}-agent`);
    expect(other.container(sessionId, 'agent')).not.toBe(one.container(sessionId, 'agent'));
    const volumes = [
      one.sessionVolume(sessionId, 'workspace'),
      one.codeVolume('p'.repeat(200), 12),
      one.runtimeVolume('0123456789abcdef'),
    ];
    for (const name of volumes) expect(name).toMatch(/^[a-z0-9][a-z0-9-]{0,62}$/);
  });
});

describe('accounts in the agent container', () => {
  test('give the uid a name and a home, and keep root and nobody', () => {
    expect(accountFiles(231072, 231072).passwd).toBe(
      'root:x:0:0:root:/root:/bin/sh\nagent:x:231072:231072:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n',
    );
    expect(accountFiles(65534, 65534).passwd.match(/65534:65534/g)).toHaveLength(1);
  });
});

describe('errors that leave the driver', () => {
  test.each([
    ['ENOENT', /no Docker engine runs here/, /start/],
    ['ECONNREFUSED', /has stopped/, /systemctl start docker/],
    ['EACCES', /may not open/, /usermod -aG docker/],
    ['ECONNRESET', /broke off/, /docker info/],
  ])('%s gives reason and next step', (code, why, next) => {
    const error = engineUnavailable('Cannot ask', '/x.sock', Object.assign(new Error(code), { code }));
    expect(error.code).toBe('engine_unavailable');
    expect(error.why).toMatch(why);
    expect(error.next).toMatch(next);
  });

  test('an unhandled error response keeps its reason', () => {
    expect(toHoldfastError(new EngineRefusal('x', 500, 'driver failed'), 'Cannot')).toMatchObject({
      code: 'engine_error',
      why: 'driver failed',
      details: { status: 500 },
    });
  });
});

test('a prepared image that is missing is made again by a deploy', () => {
  const { repository, tag } = new Naming('0123456789abcdef').preparedImage('setup-1');
  expect(missingImageError(`${repository}:${tag}`).next).toContain('deploy the profile again');
  expect(missingImageError('registry.test/prepared:1').next).toContain('docker pull');
});
