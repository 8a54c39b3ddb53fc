import { describe, expect, test } from 'vitest';
import type { EngineFacts } from '../../../supervisor/engine/port.ts';
import {
  capabilityChecks,
  engineCheck,
  factChecks,
  isOlder,
} from '../../../supervisor/doctor/engine-checks.ts';
import { machineChecks, type MachineFacts } from '../../../supervisor/doctor/machine-checks.ts';

const ENGINE: EngineFacts = {
  version: '27.3.1',
  runtime: 'runc',
  runtimeVersion: '1.3.3',
  kernel: '6.1.0',
  storageDriver: 'overlay2',
  cgroupVersion: '2',
  liveRestore: true,
  seccomp: true,
  apparmor: true,
  selinux: false,
  userNamespaces: false,
  rootless: false,
  limits: { memory: true, cpu: true, pids: true },
  clockMs: 1_000_000,
};
const MACHINE: MachineFacts = {
  node: '24.3.0',
  home: { path: '/home/ada/.holdfast', mode: 0o40700, mine: true },
  disk: { type: 0xef53, freeBytes: 50 * 2 ** 30, totalBytes: 100 * 2 ** 30, freeInodes: 900, inodes: 1000 },
  inotify: { instances: 128, watches: 200_000, used: 3 },
  vsock: false,
};

const ofEngine = (facts: Partial<EngineFacts>) => factChecks({ ...ENGINE, ...facts }, 1_000_000);
const ofMachine = (facts: Partial<MachineFacts>) => machineChecks({ ...MACHINE, ...facts });
const bad = (checks: ReturnType<typeof factChecks>) =>
  checks.filter(({ status }) => status !== 'ok').map(({ name, status }) => `${status} ${name}`);

test('a healthy machine has no findings', () => {
  expect(bad([...ofEngine({}), ...ofMachine({})])).toEqual([]);
});

describe('the engine', () => {
  test.each<[string, Partial<EngineFacts>, string]>([
    ['volume prune takes named volumes before 23', { version: '20.10.24+dfsg1' }, 'warning engine version'],
    ['runc with published ways out', { runtimeVersion: '1.1.5+ds1-1+deb12u1' }, 'warning runtime'],
    ['runc 1.2.7 is one of them', { runtimeVersion: '1.2.7' }, 'warning runtime'],
    ['no seccomp', { seccomp: false }, 'problem seccomp'],
    ['no access control', { apparmor: false }, 'warning access control'],
    ['limits without effect', { limits: { memory: false, cpu: true, pids: true } }, 'problem limits'],
    ['clocks apart', { clockMs: 1_000_000 - 60_000 }, 'warning clock'],
  ])('%s', (_, facts, found) => {
    expect(bad(ofEngine(facts))).toEqual([found]);
  });

  test('runc 1.2.8 and 1.3.0 are not older than 1.2.8; other runtimes are not compared with runc', () => {
    expect(bad(ofEngine({ runtimeVersion: '1.2.8' }))).toEqual([]);
    expect(bad(ofEngine({ runtime: 'crun', runtimeVersion: '0.1' }))).toEqual([]);
    expect([isOlder('1.2.10', '1.2.8'), isOlder('1.10.0', '1.9.0'), isOlder('20.10.24+x', '23.0.0')]).toEqual(
      [false, false, true],
    );
  });

  test('that does not answer is a problem with a reason and a next step', () => {
    const status = {
      reachable: false,
      endpoint: 'unix:///x',
      source: 'default',
      version: null,
      apiVersion: null,
      capabilities: null,
    } as const;
    expect(engineCheck({ ...status, why: 'nobody listens', next: 'start it' })).toEqual({
      name: 'engine',
      status: 'problem',
      found: 'nobody listens',
      next: 'start it',
    });
    expect(capabilityChecks({ ...status, why: null, next: null })).toEqual([]);
  });
});

describe('the machine', () => {
  test.each<[string, Partial<MachineFacts>, string]>([
    ['a Node that is too old', { node: '22.1.0' }, 'problem node'],
    ['a home that others may enter', { home: { ...MACHINE.home, mode: 0o40755 } }, 'problem home'],
    ['a home of somebody else', { home: { ...MACHINE.home, mine: false } }, 'problem home'],
    [
      'few inotify instances left',
      { inotify: { instances: 128, watches: 200_000, used: 120 } },
      'warning inotify',
    ],
    ['few watches', { inotify: { instances: 128, watches: 8192, used: 0 } }, 'warning inotify'],
  ])('%s', (_, facts, found) => {
    expect(bad(ofMachine(facts))).toEqual([found]);
  });

  test.each([
    ['NFS', 0x6969, 50, 'warning file system'],
    ['tmpfs', 0x01021994, 50, 'warning file system'],
    ['nearly full', 0xef53, 0.5, 'problem disk space'],
    ['filling up', 0xef53, 3, 'warning disk space'],
  ])('a disk: %s', (_, type, freeGib, found) => {
    const disk = {
      type,
      freeBytes: freeGib * 2 ** 30,
      totalBytes: 100 * 2 ** 30,
      freeInodes: 900,
      inodes: 1000,
    };
    expect(bad(ofMachine({ disk }))).toEqual([found]);
  });

  test('without free inodes the disk is full, however many bytes are free', () => {
    const disk = { type: 0xef53, freeBytes: 2 ** 40, totalBytes: 2 ** 41, freeInodes: 1, inodes: 1000 };
    expect(bad(ofMachine({ disk }))).toEqual(['problem disk space']);
  });
});
