import { Location, TestMessage, window } from 'vscode';
import type { TestItem, TestRun } from 'vscode';
import type { CheckSubject } from '../../protocol/checks.ts';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { sanitize } from '../base/sanitize.ts';
import type { CheckRuns } from './check-runs.ts';

const RUN_AGAIN = 'Run Again';
const MAX_MESSAGES = 100;
const MAX_ERROR_CHARACTERS = 1000;
// Control characters but the tab: an escape sequence may arrive in two parts, of which neither looks like one.
// eslint-disable-next-line no-control-regex -- control characters
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** A check of a session, and its item in the Testing view. */
export interface TestedCheck {
  readonly item: TestItem;
  readonly session: Session;
  readonly name: string;
  readonly command: string;
}

export interface TestRunOptions {
  readonly of: CheckSubject;
  /** In this order, one after the other. */
  readonly checks: readonly TestedCheck[];
  /** Also those that passed on the same tree before. */
  readonly again: boolean;
  /** The person wants those run that had passed before. */
  readonly runAgain: (cached: readonly TestedCheck[]) => void;
}

/** Runs checks as one run of the Testing view, and ends it. */
export async function runTests(run: TestRun, runs: CheckRuns, options: TestRunOptions): Promise<void> {
  const { checks } = options;
  try {
    for (const { item } of checks) run.enqueued(item);
    for (const id of new Set(checks.map(({ session }) => session.id))) runs.clearProblems(id);
    const cached: TestedCheck[] = [];
    for (const check of checks) {
      if (run.token.isCancellationRequested) run.skipped(check.item);
      else if (await runTest(run, runs, check, options)) cached.push(check);
    }
    if (cached.length > 0) offerAgain(cached, options.runAgain);
  } finally {
    run.end();
  }
}

/** Returns whether it passed before and did not run. */
async function runTest(
  run: TestRun,
  runs: CheckRuns,
  { item, session, ...check }: TestedCheck,
  { of, again }: TestRunOptions,
): Promise<boolean> {
  run.started(item);
  try {
    const { shown, cached, ms, problems } = await runs.runOne(session, of, check, {
      ...{ again, token: run.token },
      onOutput: (text) => run.appendOutput(forTerminal(text), undefined, item),
    });
    if (shown.exitCode === 0) {
      run.passed(item, ms);
    } else {
      const placed = problems.slice(0, MAX_MESSAGES).map(({ uri, diagnostic }) => {
        const message = new TestMessage(diagnostic.message);
        message.location = new Location(uri, diagnostic.range);
        return message;
      });
      run.failed(item, [new TestMessage(`Exit code ${shown.exitCode}`), ...placed], ms);
    }
    return cached;
  } catch (error) {
    if (run.token.isCancellationRequested) {
      run.skipped(item);
    } else {
      const text = sanitize(HoldfastError.from(error).sentence, MAX_ERROR_CHARACTERS);
      run.appendOutput(`${text}\r\n`, undefined, item);
      run.errored(item, new TestMessage(text));
    }
    return false;
  }
}

/** What passed before did not run, and is no failure for that. */
function offerAgain(cached: readonly TestedCheck[], runAgain: TestRunOptions['runAgain']): void {
  const names = cached.map(({ name }) => sanitize(name)).join(', ');
  void window
    .showInformationMessage(`Passed before on the same files and did not run again: ${names}.`, RUN_AGAIN)
    .then((choice) => {
      if (choice === RUN_AGAIN) runAgain(cached);
    });
}

/** Lines as a terminal needs them, without anything that it would obey. */
function forTerminal(text: string): string {
  return text
    .split(/\r?\n|\r/)
    .map((line) => line.replace(CONTROL, ''))
    .join('\r\n');
}
