import { join, relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const ROOT = join(import.meta.dirname, '../..');

/**
 * Files that take long, with their seconds in a run of everything (the mean of two). A long file that began last would run alone at
 * the end of its tier. The order matters, not the exact figure; a file that is not named counts as short. A checkout that has run its
 * tests before goes by its own figures.
 */
export const LONG_FILES: Readonly<Record<string, number>> = {
  'test/processes/agents/conversation.test.ts': 60,
  'test/processes/sidecar/turns.test.ts': 50,
  'test/processes/sidecar/workers.test.ts': 50,
  'test/processes/egress/credentials.test.ts': 40,
  'test/processes/hosts/connections.test.ts': 30,
  'test/processes/hosts/odd-machines.test.ts': 30,
  'test/processes/hosts/slow-links.test.ts': 25,
  'test/processes/snapshots/sidecar/scan.test.ts': 20,
  'test/processes/sidecar/processes.test.ts': 20,
  'test/processes/handoff/full-disk.test.ts': 15,
  'test/processes/handoff/kinds-of-repositories.test.ts': 15,
  'test/processes/egress/proxy-process.test.ts': 15,
  'test/processes/bundles/bundles.test.ts': 15,
  'test/processes/protocol/connect.test.ts': 14,
  'test/processes/egress/credential-process.test.ts': 14,
  'test/processes/egress/proxy.test.ts': 13,
  'test/processes/snapshots/sidecar/restore-crashes.test.ts': 11,
  'test/processes/turns/turn-run.test.ts': 10,
  'test/docker/first-start.test.ts': 145,
  'test/faults/failpoints/workspaces.test.ts': 145,
  'test/docker/setup/resume.test.ts': 105,
  'test/faults/failpoints/sessions.test.ts': 105,
  'test/faults/failpoints/turns.test.ts': 105,
  'test/faults/failpoints/snapshots.test.ts': 100,
  'test/faults/failpoints/failures.test.ts': 90,
  'test/docker/setup/dockerfile.test.ts': 80,
  'test/faults/engine.test.ts': 75,
  'test/docker/setup/secrets.test.ts': 75,
  'test/attacks/egress/floods.test.ts': 70,
  'test/faults/deaths.test.ts': 70,
  'test/docker/cli.test.ts': 70,
  'test/faults/snapshots.test.ts': 70,
  'test/docker/snapshots/sessions.test.ts': 65,
  'test/docker/daemon/supervisors.test.ts': 65,
  'test/docker/setup/packages.test.ts': 65,
  'test/docker/examples.test.ts': 60,
  'test/docker/agents.test.ts': 60,
  'test/docker/seed.test.ts': 60,
  'test/attacks/snapshots/leased-files.test.ts': 60,
  'test/docker/moves.test.ts': 55,
  'test/faults/hydration.test.ts': 55,
  'test/docker/terminals/terminals.test.ts': 55,
  'test/docker/attachments.test.ts': 55,
  'test/docker/agent-home.test.ts': 55,
  'test/attacks/setup/hostile-dockerfile.test.ts': 55,
  'test/docker/engine-faults.test.ts': 50,
  'test/attacks/home/hostile-home.test.ts': 50,
  'test/docker/snapshots/properties.test.ts': 50,
  'test/docker/setup/repository.test.ts': 45,
  'test/faults/full-disk.test.ts': 40,
  'test/docker/mission/sessions.test.ts': 40,
  'test/faults/homes.test.ts': 40,
  'test/attacks/turns/run-directory.test.ts': 35,
  'test/attacks/files/swaps.test.ts': 35,
  'test/docker/setup/commands.test.ts': 35,
  'test/docker/host-cuts.test.ts': 35,
  'test/faults/moves.test.ts': 35,
  'test/attacks/setup/hostile-commands.test.ts': 35,
  'test/docker/daemon/homes.test.ts': 30,
  'test/docker/sidecar.test.ts': 30,
  'test/docker/mission/workspace.test.ts': 30,
  'test/attacks/credentials/kept-keys.test.ts': 30,
  'test/docker/hosts.test.ts': 30,
  'test/docker/egress/clients.test.ts': 30,
  'test/docker/files.test.ts': 30,
  'test/attacks/files/watches.test.ts': 30,
  'test/docker/host-flow.test.ts': 30,
  'test/attacks/turns/sweep.test.ts': 30,
  'test/docker/artifacts.test.ts': 25,
  'test/attacks/egress/addresses.test.ts': 25,
  'test/attacks/snapshots/snapshots.test.ts': 25,
  'test/attacks/egress/requests.test.ts': 25,
  'test/docker/review.test.ts': 25,
  'test/docker/engine.test.ts': 25,
  'test/docker/search.test.ts': 25,
  'test/faults/files.test.ts': 20,
  'test/docker/handoff.test.ts': 20,
  'test/docker/snapshots/scan-cache.test.ts': 20,
  'test/attacks/egress/proxy-process.test.ts': 20,
  'test/editor/session-folder.test.ts': 135,
  'test/e2e/session-window.test.ts': 125,
  'test/e2e/hostile-window.test.ts': 115,
  'test/e2e/remembered-configuration.test.ts': 105,
  'test/editor/documents.test.ts': 105,
  'test/e2e/opened-files.test.ts': 100,
  'test/e2e/remote-host.test.ts': 95,
  'test/editor/session-page/session-page.test.ts': 80,
  'test/editor/session-page/snapshots.test.ts': 65,
  'test/e2e/lone-package.test.ts': 65,
  'test/e2e/first-steps.test.ts': 60,
  'test/e2e/session-page.test.ts': 60,
  'test/e2e/search-and-replace.test.ts': 60,
  'test/e2e/more-folders.test.ts': 55,
  'test/editor/hosts.test.ts': 50,
  'test/e2e/sessions-view.test.ts': 50,
  'test/e2e/home-page.test.ts': 50,
  'test/e2e/review.test.ts': 50,
  'test/editor/large-workspace.test.ts': 50,
  'test/e2e/agent-and-editor.test.ts': 50,
  'test/editor/home-page/home-page.test.ts': 45,
  'test/e2e/terminals.test.ts': 45,
  'test/e2e/come-back.test.ts': 45,
  'test/editor/terminals.test.ts': 40,
  'test/editor/paths.test.ts': 40,
  'test/e2e/conflicts.test.ts': 35,
  'test/e2e/session-page-snapshots.test.ts': 35,
  'test/e2e/setup.test.ts': 35,
  'test/e2e/find-and-allow.test.ts': 30,
  'test/e2e/engine-gone.test.ts': 30,
  'test/e2e/host-menus.test.ts': 30,
  'test/editor/desktop.test.ts': 25,
  'test/editor/host-paths.test.ts': 25,
  'test/editor/session-page/attachments.test.ts': 25,
  'test/editor/snapshot-folder.test.ts': 25,
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
