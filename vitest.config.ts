import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { z } from 'zod';
import { LongestFirst } from './test/setup/longest-first.ts';
import { memoryFolder } from './test/setup/memory-folder.ts';

const ROOT = import.meta.dirname;

interface Build {
  readonly version: string;
  readonly id: string;
  readonly time: string;
  readonly sidecar: string;
  readonly agent: string;
}

const NO_BUILD: Build = {
  version: '0.0.0',
  id: '0'.repeat(16),
  time: new Date(0).toISOString(),
  sidecar: '',
  agent: '',
};

/** The unit tests run from the sources alone; every other tier needs the built program. */
function needsBuild(): boolean {
  const { argv } = process;
  const projects = argv.flatMap((arg, at) =>
    arg === '--project' ? argv.slice(at + 1, at + 2) : arg.startsWith('--project=') ? [arg.slice(10)] : [],
  );
  return projects.length === 0 || projects.some((name) => name !== 'unit');
}

/** Builds the program under test. The tests are clients of the same build: supervisor and client of two builds replace each other. */
function buildFirst(): Build {
  try {
    // `npm test` builds once for all tiers: nothing changes between them.
    if (process.env['HOLDFAST_TEST_BUILT'] !== '1') {
      execFileSync(process.execPath, [join(ROOT, 'esbuild.mjs')], {
        cwd: ROOT,
        stdio: ['ignore', 'ignore', 'pipe'],
      });
    }
  } catch (cause) {
    // The global set-up of the tiers that need the build fails with it.
    process.env['HOLDFAST_TEST_BUILD_FAILED'] = cause instanceof Error ? cause.message : String(cause);
    return NO_BUILD;
  }
  const read = (name: string): unknown => JSON.parse(readFileSync(join(ROOT, 'dist', name), 'utf8'));
  const build = z.object({ version: z.string(), id: z.string(), time: z.string() }).parse(read('build.json'));
  const images = z.object({ sidecar: z.string(), agent: z.string() }).parse(read('images.json'));
  return { ...build, ...images };
}
const build = needsBuild() ? buildFirst() : NO_BUILD;

/** The times that are promised are for two processors; with more, more files run at the same time. */
const PROCESSORS = Math.max(2, Math.min(availableParallelism(), 6));

const needsDocker = {
  globalSetup: ['test/setup/built-program.ts', 'test/setup/docker.ts', 'test/setup/ssh-server.ts'],
  // Only a test that hangs is to be ended: on a busy machine everything takes ten times as long.
  testTimeout: 150_000,
  hookTimeout: 180_000,
  // A test waits for containers and the disk nearly half of its time.
  maxWorkers: Math.ceil(PROCESSORS * 1.75),
  sequence: { groupOrder: 2 },
};

/** After the others: VS Code and its browser would keep them from the processor. */
const needsEditor = {
  ...needsDocker,
  globalSetup: [
    'test/setup/built-program.ts',
    'test/setup/docker.ts',
    'test/setup/ssh-server.ts',
    'test/setup/editor.ts',
  ],
  testTimeout: 300_000,
  hookTimeout: 240_000,
  // VS Code, its browser and a sandbox keep one processor busy together.
  maxWorkers: PROCESSORS,
  sequence: { groupOrder: 3 },
};

export default defineConfig({
  define: {
    __VERSION__: JSON.stringify(build.version),
    __BUILD_ID__: JSON.stringify(build.id),
    __NODE_VERSION__: JSON.stringify(process.versions.node),
    __BUILD_TIME__: JSON.stringify(build.time),
    __SIDECAR_IMAGE__: JSON.stringify(build.sidecar),
    __AGENT_IMAGE__: JSON.stringify(build.agent),
  },
  test: {
    environment: 'node',
    pool: 'forks',
    retry: 0,
    // The default of a second would be a guess at the speed of the machine. A poll that succeeds ends at once, however long this is.
    expect: { poll: { timeout: 12_000 } },
    unstubEnvs: true,
    restoreMocks: true,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          setupFiles: ['test/setup/starts-nothing.ts'],
          // One process runs many files and loads each module once: starting a process for each file takes longer than the tests.
          isolate: false,
          env: memoryFolder(),
          testTimeout: 40_000,
          // Where there is no folder in memory, files of SQLite wait for the disk.
          maxWorkers: PROCESSORS + 1,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'processes',
          include: ['test/processes/**/*.test.ts'],
          globalSetup: ['test/setup/built-program.ts', 'test/setup/busybox.ts', 'test/setup/ssh-server.ts'],
          testTimeout: 40_000,
          // The processes of a test wait for each other.
          maxWorkers: Math.ceil(PROCESSORS * 1.5),
          sequence: { groupOrder: 1 },
        },
      },
      { extends: true, test: { name: 'docker', include: ['test/docker/**/*.test.ts'], ...needsDocker } },
      { extends: true, test: { name: 'attacks', include: ['test/attacks/**/*.test.ts'], ...needsDocker } },
      { extends: true, test: { name: 'faults', include: ['test/faults/**/*.test.ts'], ...needsDocker } },
      // Not part of `npm test`: the images of the agents come from npm, some hundred megabytes each.
      { extends: true, test: { name: 'agents', include: ['test/agents/**/*.test.ts'], ...needsDocker } },
      { extends: true, test: { name: 'editor', include: ['test/editor/**/*.test.ts'], ...needsEditor } },
      { extends: true, test: { name: 'e2e', include: ['test/e2e/**/*.test.ts'], ...needsEditor } },
    ],
  },
});
