import { describe, expect, test } from 'vitest';
import { importProblem } from '../../../scripts/lint/one-way-imports.mjs';

describe('imports between modules point one way', () => {
  test.each([
    ['sidecar/main.ts', 'protocol/errors.ts'],
    ['sidecar/main.ts', 'sidecar/turns/turn.ts'],
    ['supervisor/sessions/turns.ts', 'sidecar/wire.ts'],
    ['supervisor/sessions/turns.ts', 'supervisor/store/rows.ts'],
    ['cli/run.ts', 'protocol/methods.ts'],
    ['cli/holdfast.ts', 'cli/main.ts'],
    ['cli/holdfast.ts', 'supervisor/daemon/run.ts'],
    ['supervisor/snapshots/store/packs.ts', 'snapshot-format/frames.ts'],
    ['extension/extension.ts', 'protocol/methods.ts'],
    ['test/docker/turns.test.ts', 'supervisor/sessions/turns.ts'],
  ])('%s may import %s', (from, to) => {
    expect(importProblem(from, to)).toBeUndefined();
  });

  test.each([
    ['protocol/methods.ts', 'supervisor/store/rows.ts'],
    ['sidecar/main.ts', 'supervisor/store/rows.ts'],
    ['supervisor/sessions/turns.ts', 'sidecar/turns/turn.ts'],
    ['supervisor/sessions/turns.ts', 'cli/output.ts'],
    ['cli/run.ts', 'supervisor/store/rows.ts'],
    ['cli/run.ts', 'sidecar/wire.ts'],
    ['cli/holdfast.ts', 'extension/extension.ts'],
    ['extension/extension.ts', 'supervisor/store/rows.ts'],
    ['protocol/methods.ts', 'test/setup/docker.ts'],
  ])('%s must not import %s', (from, to) => {
    expect(importProblem(from, to)).toContain(to);
  });
});
