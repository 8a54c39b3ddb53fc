import { describe, expect, test } from 'vitest';
import { importProblem } from '../../../scripts/lint/one-way-imports.mjs';

describe('imports between rooms point one way', () => {
  test.each([
    ['sidecar/main.ts', 'protocol/errors.ts'],
    ['sidecar/main.ts', 'sidecar/turns/turn.ts'],
    ['supervisor/sessions/turns.ts', 'sidecar/wire.ts'],
    ['supervisor/sessions/turns.ts', 'supervisor/store/rows.ts'],
    ['supervisor/cli/run.ts', 'protocol/methods.ts'],
    ['supervisor/main.ts', 'supervisor/cli/main.ts'],
    ['extension/extension.ts', 'protocol/methods.ts'],
    ['test/docker/turns.test.ts', 'supervisor/sessions/turns.ts'],
  ])('%s may import %s', (from, to) => {
    expect(importProblem(from, to)).toBeUndefined();
  });

  test.each([
    ['protocol/methods.ts', 'supervisor/store/rows.ts'],
    ['sidecar/main.ts', 'supervisor/store/rows.ts'],
    ['supervisor/sessions/turns.ts', 'sidecar/turns/turn.ts'],
    ['supervisor/sessions/turns.ts', 'supervisor/cli/output.ts'],
    ['supervisor/cli/run.ts', 'supervisor/store/rows.ts'],
    ['supervisor/cli/run.ts', 'sidecar/wire.ts'],
    ['supervisor/main.ts', 'extension/extension.ts'],
    ['extension/extension.ts', 'supervisor/store/rows.ts'],
    ['protocol/methods.ts', 'test/setup/docker.ts'],
  ])('%s must not import %s', (from, to) => {
    expect(importProblem(from, to)).toContain(to);
  });
});
