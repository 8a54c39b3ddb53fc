// Which suites a change can break without importing what was changed: they run it as a built program, or in VS Code.

/**
 * Path prefix → test files and folders. The longest prefix that fits a changed file counts.
 * @type {Readonly<Record<string, readonly string[]>>}
 */
export const AFFECTED = {
  'cli/': ['test/docker/cli.test.ts', 'test/docker/files.test.ts', 'test/docker/mission'],
  'cli/terminal/': ['test/docker/terminals'],
  'examples/': ['test/docker/examples.test.ts'],
  'examples/programs/': ['test/docker/programs.test.ts'],
  'extension/': ['test/processes/extension', 'test/editor', 'test/e2e'],
  'extension/artifacts/': [
    'test/processes/extension',
    'test/editor/artifacts.test.ts',
    'test/e2e/artifacts.test.ts',
  ],
  'extension/connection/': [
    'test/processes/extension',
    'test/editor/hosts.test.ts',
    'test/editor/session-folder.test.ts',
    'test/e2e/come-back.test.ts',
    'test/e2e/engine-gone.test.ts',
    'test/e2e/remote-host.test.ts',
  ],
  'extension/files/': [
    'test/processes/extension',
    'test/editor',
    'test/e2e/conflicts.test.ts',
    'test/e2e/agent-and-editor.test.ts',
    'test/e2e/hostile-window.test.ts',
    'test/e2e/more-folders.test.ts',
    'test/e2e/opened-files.test.ts',
  ],
  'extension/hosts/': [
    'test/processes/extension',
    'test/editor/hosts.test.ts',
    'test/editor/host-paths.test.ts',
    'test/e2e/host-menus.test.ts',
    'test/e2e/remote-host.test.ts',
  ],
  'hosts/': [
    'test/processes/hosts',
    'test/docker/hosts.test.ts',
    'test/docker/host-cuts.test.ts',
    'test/docker/host-flow.test.ts',
    'test/docker/host-keys.test.ts',
    'test/docker/moves.test.ts',
    'test/editor/hosts.test.ts',
    'test/e2e/remote-host.test.ts',
  ],
  'extension/images/': ['test/processes/extension', 'test/e2e/lone-package.test.ts'],
  'extension/page/': [
    'test/processes/extension',
    'test/editor/session-page',
    'test/e2e/manifest.test.ts',
    'test/e2e/session-page.test.ts',
    'test/e2e/session-page-snapshots.test.ts',
  ],
  'extension/home/': ['test/processes/extension', 'test/editor/home-page', 'test/e2e/home-page.test.ts'],
  'extension/setups/': ['test/processes/extension', 'test/e2e/setup.test.ts'],
  'webview/home': ['test/editor/home-page', 'test/e2e/home-page.test.ts'],
  'webview/': [
    'test/editor/session-page',
    'test/editor/home-page',
    'test/e2e/session-page.test.ts',
    'test/e2e/session-page-snapshots.test.ts',
  ],
  'extension/handoff/': ['test/processes/extension', 'test/e2e/review.test.ts'],
  'extension/review/': [
    'test/processes/extension',
    'test/e2e/review.test.ts',
    'test/e2e/review-gutter.test.ts',
  ],
  'extension/search/': [
    'test/processes/extension',
    'test/e2e/find-and-allow.test.ts',
    'test/e2e/search-and-replace.test.ts',
  ],
  'extension/sessions/': ['test/processes/extension', 'test/editor/session-folder.test.ts', 'test/e2e'],
  'extension/snapshots/': [
    'test/processes/extension',
    'test/editor/snapshot-folder.test.ts',
    'test/e2e/first-steps.test.ts',
  ],
  'egress-proxy/': ['test/processes/egress', 'test/docker/egress', 'test/attacks/egress'],
  'extension/terminals/': [
    'test/processes/extension',
    'test/editor/terminals.test.ts',
    'test/e2e/terminals.test.ts',
    'test/e2e/session-window.test.ts',
  ],
  'handoff/': ['test/processes/handoff', 'test/docker/handoff.test.ts', 'test/e2e/review.test.ts'],
  'images/': [
    'test/docker/images.test.ts',
    'test/docker/first-start.test.ts',
    'test/docker/examples.test.ts',
  ],
  'package.json': ['test/docker/first-start.test.ts', 'test/e2e/lone-package.test.ts'],
  'project/': [
    'test/processes/cli',
    'test/docker/agent-config.test.ts',
    'test/docker/examples.test.ts',
    'test/docker/seed.test.ts',
    'test/docker/setup',
    'test/faults/deploy-upload.test.ts',
    'test/e2e/remembered-configuration.test.ts',
  ],
  'protocol/': [
    'test/processes/protocol',
    'test/attacks/protocol',
    'test/docker/cli.test.ts',
    'test/docker/mission',
    'test/e2e/come-back.test.ts',
  ],
  'scripts/': ['test/docker/first-start.test.ts', 'test/faults/setup-engine.test.ts'],
  'sidecar/': [
    'test/processes/sidecar',
    'test/docker/sidecar.test.ts',
    'test/docker/mission',
    'test/faults/deaths.test.ts',
  ],
  'sidecar/egress/': ['test/docker/egress', 'test/attacks/egress', 'test/attacks/credentials'],
  'sidecar/files/': [
    'test/processes/sidecar',
    'test/docker/files.test.ts',
    'test/attacks/files',
    'test/faults/files.test.ts',
  ],
  'sidecar/guest/tools.sh': ['test/processes/tools', 'test/docker/agents.test.ts'],
  'sidecar/guest/': [
    'test/processes/sidecar',
    'test/docker/workers.test.ts',
    'test/docker/exceeded-limits.test.ts',
    'test/attacks/turns',
    'test/docker/processes.test.ts',
    'test/docker/terminals',
    'test/faults/full-disk.test.ts',
  ],
  'sidecar/processes/': [
    'test/processes/sidecar',
    'test/docker/processes.test.ts',
    'test/docker/agents.test.ts',
  ],
  'sidecar/home/': ['test/processes/sidecar', 'test/docker/agent-home.test.ts', 'test/attacks/home'],
  'sidecar/search/': ['test/docker/search.test.ts', 'test/docker/watch.test.ts'],
  'sidecar/snapshots/': [
    'test/docker/snapshots',
    'test/attacks/snapshots',
    'test/faults/snapshots.test.ts',
    'test/faults/failpoints/snapshots.test.ts',
  ],
  'sidecar/terminals/': ['test/processes/sidecar', 'test/docker/terminals', 'test/attacks/terminals'],
  'sidecar/turns/': [
    'test/processes/sidecar',
    'test/docker/sidecar.test.ts',
    'test/attacks/turns',
    'test/faults/deaths.test.ts',
    'test/faults/failpoints/turns.test.ts',
  ],
  'sidecar/watch/': [
    'test/processes/sidecar',
    'test/docker/watch.test.ts',
    'test/attacks/files/watches.test.ts',
  ],
  'snapshot-format/': ['test/docker/snapshots', 'test/attacks/snapshots', 'test/faults/snapshots.test.ts'],
  'supervisor/': ['test/docker/mission', 'test/docker/cli.test.ts', 'test/faults/failpoints'],
  'supervisor/agents/': [
    'test/docker/workers.test.ts',
    'test/docker/agents.test.ts',
    'test/docker/mission/sessions.test.ts',
    'test/faults/failpoints',
  ],
  'supervisor/bundles/': [
    'test/docker/moves.test.ts',
    'test/docker/event-texts.test.ts',
    'test/faults/moves.test.ts',
    'test/faults/failpoints',
  ],
  'supervisor/checks/': [
    'test/docker/mission',
    'test/docker/review.test.ts',
    'test/editor/terminals.test.ts',
  ],
  'supervisor/conversation/': [
    'test/docker/agents.test.ts',
    'test/docker/attachments.test.ts',
    'test/docker/cli.test.ts',
    'test/docker/mission',
    'test/e2e/session-page.test.ts',
    'test/faults/failpoints',
  ],
  'supervisor/daemon/': [
    'test/docker/daemon',
    'test/docker/mission',
    'test/faults/homes.test.ts',
    'test/faults/failpoints',
  ],
  'supervisor/handoff/': ['test/docker/handoff.test.ts', 'test/e2e/review.test.ts', 'test/faults/failpoints'],
  'supervisor/history/': [
    'test/docker/artifacts.test.ts',
    'test/docker/attachments.test.ts',
    'test/docker/cli.test.ts',
    'test/docker/event-texts.test.ts',
    'test/docker/history-cut.test.ts',
    'test/docker/mission',
    'test/faults/failpoints',
  ],
  'supervisor/manifests/': [
    'test/docker/manifest.test.ts',
    'test/docker/mission',
    'test/e2e/manifest.test.ts',
    'test/faults/failpoints',
  ],
  'supervisor/moves/': [
    'test/docker/moves.test.ts',
    'test/docker/host-cuts.test.ts',
    'test/faults/moves.test.ts',
    'test/faults/failpoints',
  ],
  'supervisor/rpc/': [
    'test/attacks/protocol',
    'test/docker/cli.test.ts',
    'test/docker/daemon',
    'test/docker/mission',
    'test/faults/failpoints',
  ],
  'supervisor/setup/': ['test/docker/setup', 'test/attacks/setup', 'test/faults/failpoints'],
  'supervisor/egress/': ['test/docker/egress', 'test/attacks/egress', 'test/attacks/credentials'],
  'supervisor/secrets/': ['test/attacks/credentials'],
  'supervisor/engine/': [
    'test/docker/engine.test.ts',
    'test/docker/engine-builds.test.ts',
    'test/docker/engine-exec.test.ts',
    'test/docker/engine-faults.test.ts',
    'test/docker/engine-images.test.ts',
    'test/faults/engine.test.ts',
  ],
  'supervisor/profiles/': [
    'test/docker/agent-config.test.ts',
    'test/docker/seed.test.ts',
    'test/docker/examples.test.ts',
    'test/faults/deploy-upload.test.ts',
    'test/faults/bad-input.test.ts',
    'test/faults/undeploy.test.ts',
  ],
  'supervisor/reviews/': [
    'test/attacks/reviews',
    'test/docker/review.test.ts',
    'test/faults/failpoints/snapshots.test.ts',
  ],
  'supervisor/sandboxes/': [
    'test/docker/mission',
    'test/faults/deaths.test.ts',
    'test/faults/engine.test.ts',
    'test/faults/failpoints/sessions.test.ts',
  ],
  'supervisor/snapshots/': [
    'test/docker/snapshots',
    'test/attacks/snapshots',
    'test/faults/hydration.test.ts',
    'test/faults/snapshots.test.ts',
    'test/faults/failpoints/snapshots.test.ts',
  ],
  'supervisor/terminals/': ['test/docker/terminals', 'test/attacks/terminals'],
  'supervisor/tools/': ['test/docker/agents.test.ts', 'test/docker/mission', 'test/faults/failpoints'],
  'supervisor/turns/': [
    'test/docker/mission/sessions.test.ts',
    'test/docker/cli.test.ts',
    'test/faults/deaths.test.ts',
    'test/faults/failpoints/turns.test.ts',
  ],
  'supervisor/workspace/': [
    'test/docker/mission/workspace.test.ts',
    'test/docker/files.test.ts',
    'test/docker/watch.test.ts',
    'test/docker/search.test.ts',
    'test/docker/storage-limit.test.ts',
  ],
  'test/editor/harness/': ['test/editor', 'test/e2e'],
  'test/editor/suite/': ['test/editor'],
  'test/faults/failpoints/': ['test/faults/failpoints'],
  'test/faults/harness/': ['test/faults'],
};

/** Tests outside the unit and the processes tier: no graph of imports is asked about them. */
const ENGINE_TIERS = ['attacks', 'docker', 'e2e', 'editor', 'faults'];

/**
 * @param {readonly string[]} changed paths below the root
 * @param {readonly string[]} [tests] all test files: one that no row names may be broken by any change of a program
 * @returns {string[]} test files and folders, each once, none inside another
 */
export function affectedSuites(changed, tests = []) {
  const suites = new Set(changed.flatMap(suitesOf));
  if (changed.some((path) => !path.startsWith('test/') && suitesOf(path).length > 0))
    for (const path of tests.filter(isUnnamed)) suites.add(path);
  return [...suites].filter((one) => ![...suites].some((other) => one.startsWith(`${other}/`))).sort();
}

/** @param {string} path of a test file */
function isUnnamed(path) {
  const rows = Object.entries(AFFECTED).flatMap(([changed, row]) => (changed.startsWith('test/') ? [] : row));
  const isEngineTest = ENGINE_TIERS.some((tier) => path.startsWith(`test/${tier}/`));
  return isEngineTest && !rows.some((row) => path === row || path.startsWith(`${row}/`));
}

/** @param {string} path @returns {readonly string[]} */
function suitesOf(path) {
  const [top, tier = ''] = path.split('/');
  const isEngineTier = top === 'test' && ENGINE_TIERS.includes(tier);
  if (isEngineTier && path.endsWith('.test.ts')) return [path];
  const prefix = Object.keys(AFFECTED)
    .filter((one) => path.startsWith(one))
    .reduce((longest, one) => (one.length > longest.length ? one : longest), '');
  if (prefix !== '') return AFFECTED[prefix] ?? [];
  // What tests share: those of its folder.
  return isEngineTier ? [path.slice(0, path.lastIndexOf('/'))] : [];
}
