import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { MODULES, importProblem } from '../../../scripts/lint/one-way-imports.mjs';

const ROOT = join(import.meta.dirname, '../../..');

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

describe('imports between the modules of an area point one way', () => {
  test.each([
    ['extension/holdfast.ts', 'extension/files/location.ts'],
    ['extension/history/history-documents.ts', 'extension/history/session-events.ts'],
    ['extension/review/workspace-marks.ts', 'extension/sessions/session-window.ts'],
    ['extension/snapshots/commands.ts', 'extension/sessions/pick-session.ts'],
    ['supervisor/sessions/removal.ts', 'supervisor/snapshots/restores.ts'],
  ])('%s may import %s', (from, to) => {
    expect(importProblem(from, to)).toBeUndefined();
  });

  test.each([
    ['extension/files/workspace-files.ts', 'extension/sessions/listing.ts'],
    ['extension/sessions/commands.ts', 'extension/snapshots/format.ts'],
    ['extension/sessions/commands.ts', 'extension/history/history-documents.ts'],
    ['extension/files/folder-settings.ts', 'extension/terminals/window-kind.ts'],
    ['extension/base/sanitize.ts', 'extension/holdfast.ts'],
    ['supervisor/snapshots/restores.ts', 'supervisor/sessions/removal.ts'],
    ['supervisor/base/log.ts', 'supervisor/store/home.ts'],
    ['extension/unlisted/file.ts', 'extension/base/sanitize.ts'],
  ])('%s must not import %s', (from, to) => {
    expect(importProblem(from, to)).toMatch(/must not import|is not in the table/);
  });

  test.each(Object.entries(MODULES))(
    'the table of %s has no cycle and names every folder',
    (area, modules) => {
      const names = Object.keys(modules);
      for (const [index, name] of names.entries())
        for (const imported of modules[name] ?? []) expect(names.slice(0, index), name).toContain(imported);
      const files = readdirSync(join(ROOT, area), { encoding: 'utf8', recursive: true });
      const folders = files.filter((file) => /^[^/]+\/.*\.ts$/.test(file)).map((file) => file.split('/')[0]);
      expect([...new Set(folders)].toSorted()).toEqual(names.toSorted());
    },
  );

  test('the table of the supervisor is the one in docs/architecture.md', () => {
    const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8');
    const [, table = ''] = /^ *module +may import\n([\s\S]*?)^```/m.exec(page) ?? [];
    const rows = table
      .trim()
      .split('\n')
      .map((line) => line.trim().split(/\s+/));
    const modules = Object.entries(MODULES['supervisor'] ?? {});
    expect(rows).toEqual(modules.map(([name, allowed]) => [name, ...(allowed.length > 0 ? allowed : ['–'])]));
  });
});
