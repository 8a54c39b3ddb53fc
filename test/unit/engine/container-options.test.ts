import { expect, test } from 'vitest';
import {
  agentOptions,
  setupOptions,
  sidecarOptions,
} from '../../../supervisor/engine/docker/container-options.ts';
import type { SandboxSpec } from '../../../supervisor/engine/port.ts';

const MIB = 2 ** 20;
const sessionId = 'ses-abcdefghijklmnop';
const spec = (cpus: number, memoryBytes = 1024 * MIB): SandboxSpec => ({
  ...{ sessionId, generation: 1, image: 'image:1', uid: 1000, gid: 1000, env: {}, runtime: 'default' },
  workspace: { sessionId, backing: 'directory', uid: 1000, gid: 1000 },
  code: { profile: 'p', version: 1 },
  limits: { memoryBytes, cpus, pids: 64 },
});

test('a sidecar may use as many processors as its agent, and at least one', () => {
  const share = (cpus: number) => ({
    sidecar: sidecarOptions(spec(cpus), 'side', [], 'none', {}).HostConfig?.NanoCpus,
    agent: agentOptions(spec(cpus), [], 'none', {}).HostConfig?.NanoCpus,
  });
  expect(share(2.5)).toEqual({ sidecar: 2.5e9, agent: 2.5e9 });
  expect(share(0.25)).toEqual({ sidecar: 1e9, agent: 0.25e9 });
});

test('/tmp of an agent is half of its memory, and counts in it; that of a sidecar is small', () => {
  const agent = agentOptions(spec(1, 1024 * MIB), [], 'none', {}).HostConfig;
  expect(agent?.Tmpfs?.['/tmp']).toContain(`size=${String(512 * MIB)}`);
  expect([agent?.Memory, agent?.MemorySwap, agent?.PidsLimit]).toEqual([1024 * MIB, 1024 * MIB, 64]);
  const sidecar = sidecarOptions(spec(1), 'side', [], 'none', {}).HostConfig;
  expect(sidecar?.Tmpfs?.['/tmp']).toContain(`size=${String(64 * MIB)}`);
  expect(sidecar?.Memory).toBeLessThanOrEqual(512 * MIB);
});

test('only what has secrets of a setup leaves no core dump: programs of a session may be debugged', () => {
  const core = { Name: 'core', Soft: 1, Hard: 1 };
  const limits = (options: ReturnType<typeof agentOptions>) => options.HostConfig?.Ulimits;
  expect(limits(setupOptions(spec(1), [], 'none', {}))).toContainEqual(core);
  expect(limits(agentOptions({ ...spec(1), hasSecretsFolder: true }, [], 'none', {}))).toContainEqual(core);
  expect(limits(agentOptions(spec(1), [], 'none', {}))).not.toContainEqual(core);
});
