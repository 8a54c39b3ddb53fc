import { describe, expect, test } from 'vitest';
import type { EngineFacts } from '../../../supervisor/engine/port.ts';
import {
  capabilityChecks,
  engineCheck,
  factChecks,
  isOlder,
} from '../../../supervisor/doctor/engine-checks.ts';
import { machineChecks, type MachineFacts } from '../../../supervisor/doctor/machine-checks.ts';
import { hasProjectQuotas } from '../../../supervisor/doctor/machine-facts.ts';

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
  projectQuotas: false,
  vsock: false,
};

const ofEngine = (facts: Partial<EngineFacts>) => factChecks({ ...ENGINE, ...facts }, 1_000_000);
const ofMachine = (facts: Partial<MachineFacts>) => machineChecks({ ...MACHINE, ...facts });
const bad = (checks: ReturnType<typeof factChecks>) =>
  checks.filter(({ status }) => status !== 'ok').map(({ name, status }) => `${status} ${name}`);

/** Limits of disk use are soft everywhere. */
const SOFT = 'warning storage limit';
const badOf = (facts: Partial<MachineFacts>) => bad(ofMachine(facts)).filter((found) => found !== SOFT);

test('a healthy machine has no findings but that limits of disk use are soft', () => {
  expect(bad([...ofEngine({}), ...ofMachine({})])).toEqual([SOFT]);
});

describe('project quotas', () => {
  const mounts = [
    '21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro',
    '35 21 8:2 / /home rw,relatime shared:2 - xfs /dev/sdb1 rw,attr2,prjquota',
    '36 35 8:3 / /home/ada rw,noatime - ext4 /dev/sdc1 rw',
    '37 21 8:4 / /mnt/a\\040disk rw - ext4 /dev/sdd1 rw,prjquota',
  ].join('\n');

  test.each([
    ['/home/bea/.holdfast', true],
    ['/home/ada/.holdfast', false],
    ['/homes/ada', false],
    ['/var/lib', false],
    ['/mnt/a disk', true],
  ])('%s: %s', (path, found) => expect(hasProjectQuotas(mounts, path)).toBe(found));

  test('are named by the doctor where the home has them', () => {
    const finding = (projectQuotas: boolean | null) =>
      ofMachine({ projectQuotas }).find(({ name }) => name === 'storage limit');
    expect(finding(true)).toMatchObject({ next: expect.stringContaining('setquota') as string });
    expect(finding(false)).toMatchObject({ next: expect.stringContaining('own file system') as string });
    expect(finding(null)).toEqual(finding(false));
  });
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
    expect(badOf(facts)).toEqual([found]);
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
    expect(badOf({ disk })).toEqual([found]);
  });

  test('without free inodes the disk is full, however many bytes are free', () => {
    const disk = { type: 0xef53, freeBytes: 2 ** 40, totalBytes: 2 ** 41, freeInodes: 1, inodes: 1000 };
    expect(badOf({ disk })).toEqual(['problem disk space']);
  });
});
