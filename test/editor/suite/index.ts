import { appendFileSync } from 'node:fs';
import Mocha from 'mocha';
import { defineActivation } from './activation.ts';
import { defineArtifacts } from './artifacts.ts';
import { defineCheckTests } from './check-tests.ts';
import { defineChecks } from './checks.ts';
import { defineConflicts } from './conflicts.ts';
import { defineDocuments } from './documents.ts';
import { defineFileSystem } from './file-system.ts';
import { defineLinks } from './links.ts';
import { defineHosts } from './hosts.ts';
import { defineHostPaths } from './host-paths.ts';
import { defineHostileWorkspace } from './hostile-workspace.ts';
import { defineMovedDocuments } from './moved-documents.ts';
import { definePaths } from './paths.ts';
import { defineRoundTrips } from './round-trips.ts';
import { defineSessions } from './sessions.ts';
import { defineSnapshotFolder } from './snapshot-folder.ts';
import { defineTerminals } from './terminals.ts';
import { defineTransfer } from './transfer.ts';
import { defineWhyLine } from './why-line.ts';

/** Suites by name. VS Code shapes differ in what they can show, so each run says which of them it wants. */
const SUITES: Readonly<Record<string, () => void>> = {
  activation: defineActivation,
  artifacts: defineArtifacts,
  'file-system': defineFileSystem,
  documents: defineDocuments,
  'moved-documents': defineMovedDocuments,
  conflicts: defineConflicts,
  'hostile-workspace': defineHostileWorkspace,
  hosts: defineHosts,
  'host-paths': defineHostPaths,
  paths: definePaths,
  sessions: defineSessions,
  links: defineLinks,
  'round-trips': defineRoundTrips,
  'snapshot-folder': defineSnapshotFolder,
  terminals: defineTerminals,
  checks: defineChecks,
  'check-tests': defineCheckTests,
  transfer: defineTransfer,
  'why-line': defineWhyLine,
};

/** VS Code calls this in its extension host; what it throws makes the run fail. */
export async function run(): Promise<void> {
  const mocha = new Mocha({ ui: 'bdd', timeout: 90_000, color: false });
  mocha.suite.emit('pre-require', globalThis, '', mocha);
  for (const name of (process.env['HOLDFAST_SUITES'] ?? '').split(',')) {
    const define = SUITES[name];
    if (define === undefined) throw new Error(`there is no suite ${name}`);
    define();
  }
  const results = process.env['HOLDFAST_SUITE_RESULTS'] ?? '';
  const tell = (test: Mocha.Test, state: 'passed' | 'failed' | 'skipped', error?: Error): void => {
    const said = error === undefined ? {} : { error: error.stack ?? error.message };
    const line = { title: test.fullTitle(), state, ms: test.duration ?? 0, ...said };
    // At once, so that a run that hangs shows how far it came.
    appendFileSync(results, `${JSON.stringify(line)}\n`);
  };
  const failed = await new Promise<number>((resolve) => {
    mocha
      .run(resolve)
      .on('pass', (test) => tell(test, 'passed'))
      .on('fail', (test, error: Error) => tell(test, 'failed', error))
      .on('pending', (test) => tell(test, 'skipped'));
  });
  if (failed > 0) throw new Error(`${failed} tests failed`);
}
