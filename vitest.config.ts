import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { z } from 'zod';

const ROOT = import.meta.dirname;

/** Tests drive the built program, and a client compiled into a test must be of the same build, or each would replace the other. */
function buildFirst(): { version: string; id: string; time: string; sidecar: string; agent: string } {
  try {
    execFileSync(process.execPath, [join(ROOT, 'esbuild.mjs')], {
      cwd: ROOT,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
  } catch (cause) {
    // Unit tests need no build; the suites that do are told by their global set-up.
    process.env['HOLDFAST_TEST_BUILD_FAILED'] = cause instanceof Error ? cause.message : String(cause);
    return { version: '0.0.0', id: '0'.repeat(16), time: new Date(0).toISOString(), sidecar: '', agent: '' };
  }
  const read = (name: string): unknown => JSON.parse(readFileSync(join(ROOT, 'dist', name), 'utf8'));
  const build = z.object({ version: z.string(), id: z.string(), time: z.string() }).parse(read('build.json'));
  const images = z.object({ sidecar: z.string(), agent: z.string() }).parse(read('images.json'));
  return { ...build, ...images };
}
const build = buildFirst();

const needsDocker = {
  globalSetup: ['test/setup/docker.ts'],
  // What takes seconds takes ten times as long beside a busy neighbour; only what hangs is to be ended.
  testTimeout: 150_000,
  hookTimeout: 180_000,
  // They wait for containers more than they work.
  maxWorkers: 3,
  sequence: { groupOrder: 1 },
};

/** After the others, which a workbench would keep from the processor. */
const needsEditor = {
  ...needsDocker,
  globalSetup: ['test/setup/docker.ts', 'test/setup/editor.ts'],
  testTimeout: 300_000,
  hookTimeout: 240_000,
  maxWorkers: 2,
  sequence: { groupOrder: 2 },
};

export default defineConfig({
  define: {
    __VERSION__: JSON.stringify(build.version),
    __BUILD_ID__: JSON.stringify(build.id),
    __BUILD_TIME__: JSON.stringify(build.time),
    __SIDECAR_IMAGE__: JSON.stringify(build.sidecar),
    __AGENT_IMAGE__: JSON.stringify(build.agent),
  },
  test: {
    environment: 'node',
    pool: 'forks',
    retry: 0,
    // The default of a second is a guess at how fast a machine is; what holds is seen at once however long this is.
    expect: { poll: { timeout: 12_000 } },
    unstubEnvs: true,
    restoreMocks: true,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          globalSetup: ['test/setup/busybox.ts'],
          testTimeout: 40_000,
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'processes',
          include: ['test/processes/**/*.test.ts'],
          globalSetup: ['test/setup/busybox.ts'],
          testTimeout: 40_000,
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      { extends: true, test: { name: 'docker', include: ['test/docker/**/*.test.ts'], ...needsDocker } },
      { extends: true, test: { name: 'attacks', include: ['test/attacks/**/*.test.ts'], ...needsDocker } },
      { extends: true, test: { name: 'faults', include: ['test/faults/**/*.test.ts'], ...needsDocker } },
      { extends: true, test: { name: 'editor', include: ['test/editor/**/*.test.ts'], ...needsEditor } },
      { extends: true, test: { name: 'e2e', include: ['test/e2e/**/*.test.ts'], ...needsEditor } },
    ],
  },
});
