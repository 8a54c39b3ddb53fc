import assert from 'node:assert/strict';
import { setTimeout } from 'node:timers/promises';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { z } from 'zod';
import { commandLine, runHoldfast } from './command-line.ts';
import { extension, waitUntil } from './extension.ts';
import { SESSION, runInSandbox, sessionUri } from './session.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
export const CONTROLLER = 'holdfast.checks';
/** Of run profiles: those that run, and do not debug. */
export const RUN_GROUP = 2;
const STATES: Readonly<Record<number, string>> = { 3: 'passed', 4: 'failed', 5: 'skipped', 6: 'errored' };

/** The part that we use of VS Code's proposed API `testObserver`, which no published extension may. */
interface ObservedTests {
  readonly testResults: readonly {
    readonly completedAt: number;
    readonly results: readonly ObservedResult[];
  }[];
}

interface ObservedResult {
  readonly id: string;
  readonly label: string;
  readonly taskStates: readonly {
    readonly state: number;
    readonly duration?: number;
    readonly messages: readonly vscode.TestMessage[];
  }[];
  readonly children: readonly ObservedResult[];
}

export function observedTests(): ObservedTests {
  const description = extension().packageJSON as { enabledApiProposals?: string[] };
  description.enabledApiProposals = ['testObserver'];
  return vscode.tests as unknown as ObservedTests;
}

/** `label: state, message @ file:line | …` of each check that was run. */
export function outcomes(results: readonly ObservedResult[]): string[] {
  return results.flatMap(({ label, taskStates, children }) => {
    const own = children.length > 0 ? [] : taskStates;
    const lines = own.map(({ state, messages }) =>
      [`${label}: ${STATES[state] ?? state}`, ...messages.map(textOf)].join(' | '),
    );
    return [...lines, ...outcomes(children)];
  });
}

/** Labels of the items whose children are checks. */
function sessionsIn(results: readonly ObservedResult[]): string[] {
  return results.flatMap(({ label, children }) => {
    const holdsChecks = children.some((child) => child.children.length === 0);
    return holdsChecks ? [label] : sessionsIn(children);
  });
}

function textOf({ message, location }: vscode.TestMessage): string {
  const text = typeof message === 'string' ? message : message.value;
  if (location === undefined) return text;
  return `${text} @ ${location.uri.path}:${location.range.start.line}`;
}

/** Needs the session of `defineChecks`. */
export function defineCheckTests(): void {
  describe('checks in the Testing view', () => {
    let tests: ObservedTests;

    /** Starts a run, and resolves with what came of it when it has ended. */
    const observeAll = async (begin: () => Promise<void>): Promise<readonly ObservedResult[]> => {
      const known = new Set(tests.testResults.map(({ completedAt }) => completedAt));
      await begin();
      const ended = await waitUntil(
        'the run ends',
        () => tests.testResults.find(({ completedAt }) => !known.has(completedAt)),
        60_000,
      );
      return ended.results;
    };
    const observe = async (begin: () => Promise<void>): Promise<string[]> =>
      outcomes(await observeAll(begin));
    const extId = `${CONTROLLER}\0${SESSION}`;
    const startOnWorkspace = async (): Promise<void> => {
      void vscode.commands.executeCommand('vscode.runTestsById', RUN_GROUP, extId);
    };
    const startAll = async (): Promise<void> => {
      void vscode.commands.executeCommand('vscode.runTestsById', RUN_GROUP, CONTROLLER);
    };
    /** The sessions that have checks in the view, which a run of all of them shows. */
    const shownSessions = async (): Promise<string[]> => sessionsIn(await observeAll(startAll));
    /** With the second of the profiles that VS Code lists. */
    const startOnAccepted = async (): Promise<void> => {
      const test = { controllerId: CONTROLLER, item: { extId, tags: [] } };
      void vscode.commands.executeCommand('testing.runUsing', { test });
      await setTimeout(2_000);
      await vscode.commands.executeCommand('workbench.action.quickOpenSelectNext');
      await vscode.commands.executeCommand('workbench.action.acceptSelectedQuickOpenItem');
    };

    before(async () => {
      await extension().activate();
      tests = observedTests();
      await runInSandbox('mkdir -p /workspace/src && printf "1\\n2\\n3\\n" > /workspace/src/a.ts');
    });

    it('say what passed and what failed, beside the lines that the Problems view names', async () => {
      await runInSandbox(
        String.raw`printf 'src/a.ts(2,1): error TS1: [no](command:x)\n/etc/passwd:1:1: error: not here\n' > /workspace/findings`,
      );
      assert.deepEqual(await observe(startOnWorkspace), [
        'compile: failed | Exit code 1 | error TS1: [no] (command:x) @ /workspace/src/a.ts:1',
        'test: passed',
      ]);
      assert.equal(vscode.languages.getDiagnostics(sessionUri('/workspace/src/a.ts')).length, 1);
      await runInSandbox(': > /workspace/findings');
      assert.deepEqual(await observe(startOnWorkspace), ['compile: passed', 'test: passed']);
      assert.deepEqual(vscode.languages.getDiagnostics(sessionUri('/workspace/src/a.ts')), []);
    });

    it('end with the run that a person cancels', async () => {
      await runInSandbox(': > /workspace/wait');
      // As a person does, until it has an effect.
      const cancelling = setInterval(() => void vscode.commands.executeCommand('testing.cancelRun'), 2_000);
      try {
        const ended = await observe(startOnWorkspace);
        assert.match(ended.join(), /test: skipped/);
      } finally {
        clearInterval(cancelling);
        await runInSandbox('rm -f /workspace/wait');
      }
    });

    it('judge what was accepted, with the other profile', async () => {
      const [withoutReview = ''] = await observe(startOnAccepted);
      assert.match(withoutReview, /^compile: errored \| .*review/);
      await commandLine(['run', 'shell', 'echo more > /workspace/more', '--session', SESSION]);
      await runHoldfast(['review', SESSION]);
      await runHoldfast(['review', 'accept', SESSION, '--all']);
      assert.deepEqual(await observe(startOnAccepted), ['compile: passed', 'test: passed']);
    });

    it('come and go with their session, under a name that makes no link', async () => {
      const other = 'odd [a](command:x)';
      const { session } = CreatedSchema.parse(
        await runHoldfast(['session', 'create', 'shell', '--name', other]),
      );
      const shown = 'odd [a] (command:x)';
      await waitUntil('its item', async () => (await shownSessions()).includes(shown), 60_000);
      await commandLine(['session', 'delete', session.id, '--force']);
      await waitUntil('no item', async () => !(await shownSessions()).includes(shown), 60_000);
    });
  });
}
