import { join, relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const ROOT = join(import.meta.dirname, '../..');

/**
 * Files that take long, with their seconds on two cores (a run of everything by CI). A long file that began last would run alone at the
 * end of its tier. The order matters, not the exact figure; a file that is not named counts as short.
 */
export const LONG_FILES: Readonly<Record<string, number>> = {
  'test/docker/first-start.test.ts': 190,
  'test/docker/agents.test.ts': 80,
  'test/docker/setup/packages.test.ts': 85,
  'test/docker/setup/secrets.test.ts': 65,
  'test/docker/daemon/supervisors.test.ts': 45,
  'test/docker/hosts.test.ts': 40,
  'test/docker/host-cuts.test.ts': 40,
  'test/docker/host-flow.test.ts': 30,
  'test/docker/seed.test.ts': 40,
  'test/faults/failpoints/failures.test.ts': 150,
  'test/faults/hydration.test.ts': 115,
  'test/faults/failpoints/snapshots.test.ts': 100,
  'test/faults/failpoints/sessions.test.ts': 100,
  'test/faults/snapshots.test.ts': 90,
  'test/faults/failpoints/workspaces.test.ts': 90,
  'test/faults/engine.test.ts': 90,
  'test/faults/deaths.test.ts': 85,
  'test/docker/snapshots/sessions.test.ts': 85,
  'test/faults/failpoints/turns.test.ts': 85,
  'test/faults/homes.test.ts': 75,
  'test/docker/cli.test.ts': 60,
  'test/docker/mission/sessions.test.ts': 55,
  'test/docker/terminals/terminals.test.ts': 50,
  'test/attacks/turns/run-directory.test.ts': 40,
  'test/docker/examples.test.ts': 60,
  'test/docker/programs.test.ts': 20,
  'test/faults/full-disk.test.ts': 60,
  'test/docker/engine-faults.test.ts': 60,
  'test/docker/snapshots/properties.test.ts': 55,
  'test/docker/agent-home.test.ts': 45,
  'test/attacks/home/hostile-home.test.ts': 60,
  'test/attacks/egress/floods.test.ts': 50,
  'test/attacks/credentials/kept-keys.test.ts': 45,
  'test/attacks/snapshots/leased-files.test.ts': 50,
  'test/editor/session-folder.test.ts': 135,
  'test/e2e/hostile-window.test.ts': 120,
  'test/e2e/remembered-configuration.test.ts': 110,
  'test/editor/session-page/session-page.test.ts': 75,
  'test/e2e/session-page.test.ts': 75,
  'test/editor/documents.test.ts': 80,
  'test/editor/home-page/home-page.test.ts': 40,
  'test/e2e/home-page.test.ts': 40,
  'test/editor/hosts.test.ts': 40,
  'test/e2e/sessions-view.test.ts': 75,
  'test/e2e/session-window.test.ts': 70,
  'test/e2e/search-and-replace.test.ts': 65,
  'test/e2e/more-folders.test.ts': 65,
  'test/e2e/agent-and-editor.test.ts': 60,
  'test/e2e/review.test.ts': 60,
  'test/e2e/terminals.test.ts': 50,
  'test/editor/paths.test.ts': 50,
  'test/processes/hosts/slow-links.test.ts': 33,
  'test/processes/hosts/connections.test.ts': 30,
  'test/processes/sidecar/turns.test.ts': 27,
  'test/processes/hosts/odd-machines.test.ts': 22,
  'test/processes/sidecar/workers.test.ts': 24,
  'test/processes/bundles/bundles.test.ts': 20,
  'test/processes/sidecar/processes.test.ts': 18,
  'test/processes/snapshots/sidecar/scan.test.ts': 14,
  'test/processes/protocol/connect.test.ts': 12,
  'test/processes/snapshots/sidecar/restore-crashes.test.ts': 11,
};

/** Orders the files of a group of projects by their duration, longest first, whichever project each belongs to. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted(
      (one, other) =>
        one.project.config.sequence.groupOrder - other.project.config.sequence.groupOrder ||
        this.#seconds(other) - this.#seconds(one),
    );
  }

  /** As the last run of this checkout measured it, if there was one. */
  #seconds(file: TestSpecification): number {
    const last = this.ctx.cache.getTestSpecificationResult(file);
    return last === undefined ? (LONG_FILES[relative(ROOT, file.moduleId)] ?? 0) : last.duration / 1000;
  }
}
