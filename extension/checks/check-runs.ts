import {
  Diagnostic,
  DiagnosticSeverity,
  Position,
  Range,
  commands,
  languages,
  window,
  workspace,
  type CancellationToken,
  type DiagnosticCollection,
  type Disposable,
  type OutputChannel,
  type Uri,
} from 'vscode';
import type { CheckSubject } from '../../protocol/checks.ts';
import type { Session } from '../../protocol/entities.ts';
import { notifyProgress } from '../base/progress.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { locate, workspaceUri } from '../files/location.ts';
import type { Homes } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { OPEN_PAGE, openPageIf } from '../sessions/page-offer.ts';
import { workspaceCandidates } from '../terminals/path-references.ts';
import { type Problem, ProblemReader, stripEscapeSequences } from './problem-reader.ts';
import { runCheck } from './run-check.ts';

/** How much output of one check is shown. */
const MAX_OUTPUT_CHARACTERS = 2 ** 20;
const MAX_MESSAGE_CHARACTERS = 1000;
/** Longer than any line: VS Code clips the range to the line. */
const WHOLE_LINE = 1000;
const SHOW_OUTPUT = 'Show Output';
const RUN_AGAIN = 'Run Again';

export interface CheckResult {
  readonly name: string;
  readonly exitCode: number;
  /** How many problems are in files of the workspace. */
  readonly problems: number;
}

const SEVERITIES = {
  error: DiagnosticSeverity.Error,
  warning: DiagnosticSeverity.Warning,
  info: DiagnosticSeverity.Information,
} as const;

/** What is judged, as a person reads it. */
const ON: Readonly<Record<CheckSubject, string>> = { workspace: '', accepted: ' on what you accepted' };

/** What is known of a check that has ended. */
export interface EndedCheck {
  readonly shown: CheckResult;
  /** It passed before on the same files and did not run again. */
  readonly cached: boolean;
  readonly ms: number;
  /** The problems that are in files of the workspace, as the Problems view shows them. */
  readonly problems: readonly PlacedProblem[];
}

export interface PlacedProblem {
  readonly uri: Uri;
  readonly diagnostic: Diagnostic;
}

export interface CheckWatcher {
  /** Also if it passed on the same tree before. */
  readonly again: boolean;
  readonly token: CancellationToken;
  readonly report?: (stage: string) => void;
  /** Receives what the output *Holdfast Checks* receives: without escape sequences, and of a long output the beginning. */
  readonly onOutput?: (text: string) => void;
}

/** As a command, which shows its failure as every command does. */
const COMMAND_ON = {
  workspace: 'holdfast.runChecks',
  accepted: 'holdfast.runChecksOnAccepted',
} as const satisfies Readonly<Record<CheckSubject, CommandId>>;

/** Runs checks of a profile, and shows the problems that they report in the Problems view. */
export class CheckRuns implements Disposable {
  readonly #connection: Connection;
  readonly #owned = new DisposableStore();
  readonly #diagnostics: DiagnosticCollection;
  readonly #output: OutputChannel;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#diagnostics = this.#owned.add(languages.createDiagnosticCollection('holdfast'));
    this.#output = this.#owned.add(window.createOutputChannel('Holdfast Checks'));
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /**
   * Runs all checks, or the one with this name, one after the other; `again`: also those that passed on the same tree before. Returns
   * the results.
   */
  async run(
    session: Session,
    of: CheckSubject,
    name: string | undefined,
    again = false,
  ): Promise<CheckResult[]> {
    const { checks } = await this.#connection.call('check/list', { session: session.id, of });
    const chosen = checks.filter((one) => name === undefined || one.name === name);
    if (chosen.length === 0) {
      void window.showInformationMessage(
        `The profile ${sanitize(session.profile)} has no checks. ` +
          'Add some to its holdfast.yaml (checks: { test: npm test }) and deploy it again.',
      );
      return [];
    }
    this.clearProblems(session.id);
    let cached = 0;
    const results = await notifyProgress(
      {
        title: `Running checks${ON[of]} in ${sanitize(sessionTitle(session))}`,
        cancellable: true,
      },
      async (progress, token) => {
        const finished: CheckResult[] = [];
        for (const check of chosen) {
          progress.report({ message: sanitize(check.name), increment: 100 / (chosen.length + 1) });
          const report = (stage: string): void =>
            progress.report({ message: `${sanitize(check.name)}: ${stage}` });
          const result = await this.runOne(session, of, check, { again, token, report });
          if (result.cached) cached += 1;
          finished.push(result.shown);
        }
        return finished;
      },
    );
    const runAgain = (): void => {
      void commands.executeCommand(COMMAND_ON[of], session.id, name, true);
    };
    this.#report(session, of, results, { cached, runAgain });
    return results;
  }

  /** Runs one check. The problems of the session's earlier runs stay: see `clearProblems`. Errors: those of `runCheck`. */
  async runOne(
    session: Session,
    of: CheckSubject,
    { name, command }: { readonly name: string; readonly command: string },
    { again, token, report, onOutput }: CheckWatcher,
  ): Promise<EndedCheck> {
    const problems: Problem[] = [];
    const reader = new ProblemReader((problem) => problems.push(problem));
    const print = (text: string): void => {
      this.#output.append(text);
      onOutput?.(text);
    };
    let characters = 0;
    const head = `[${sessionTitle(session)}] ${name}${ON[of]}`;
    print(`${head}: ${command}\n`);
    const { exitCode, tree, cached, ms } = await runCheck(this.#connection, {
      ...{ session: session.id, name, of, again, token },
      onProgress: (stage) => report?.(stage),
      onOutput: (text) => {
        reader.read(text);
        if (characters <= MAX_OUTPUT_CHARACTERS) {
          print(stripEscapeSequences(text));
          if (characters + text.length > MAX_OUTPUT_CHARACTERS)
            print('\n… the rest of the output is not shown\n');
        }
        characters += text.length;
      },
    });
    reader.end();
    const before = cached ? ', before: it was not run again' : '';
    print(`${head}: exit code ${exitCode}, tree ${tree.slice(0, 12)}${before}\n`);
    const source = of === 'accepted' ? `${name} (accepted)` : name;
    const placed = await this.#show(session.id, source, problems);
    return { shown: { name, exitCode, problems: placed.length }, cached, ms, problems: placed };
  }

  /** Shows the problems that are in files of the workspace, and returns them. */
  async #show(
    session: string,
    check: string,
    problems: readonly Problem[],
  ): Promise<readonly PlacedProblem[]> {
    const uris = new Map<string, Promise<Uri | null>>();
    const found = await Promise.all(
      problems.map(async (problem) => {
        const uri = uris.get(problem.path) ?? findFile(this.#connection, session, problem.path);
        uris.set(problem.path, uri);
        return { uri: await uri, diagnostic: diagnosticOf(problem, check) };
      }),
    );
    const placed = found.flatMap(({ uri, diagnostic }) => (uri === null ? [] : [{ uri, diagnostic }]));
    const byFile = new Map<string, { readonly uri: Uri; readonly diagnostics: Diagnostic[] }>();
    for (const { uri, diagnostic } of placed) {
      const file = byFile.get(uri.toString()) ?? { uri, diagnostics: [] };
      byFile.set(uri.toString(), file);
      file.diagnostics.push(diagnostic);
    }
    for (const { uri, diagnostics } of byFile.values())
      this.#diagnostics.set(uri, [...(this.#diagnostics.get(uri) ?? []), ...diagnostics]);
    return placed;
  }

  /** Removes what earlier checks of the session reported. */
  clearProblems(session: string): void {
    const old: Uri[] = [];
    this.#diagnostics.forEach((uri) => {
      const location = locate(uri);
      if (location.kind !== 'nowhere' && location.session === session) old.push(uri);
    });
    for (const uri of old) this.#diagnostics.delete(uri);
  }

  #report(
    session: Session,
    of: CheckSubject,
    results: readonly CheckResult[],
    { cached, runAgain }: { readonly cached: number; readonly runAgain: () => void },
  ): void {
    const failed = results.filter(({ exitCode }) => exitCode !== 0).map(({ name }) => sanitize(name));
    const title = sanitize(sessionTitle(session));
    // What passed before does not fail because it was not run again.
    const kept = cached === 0 ? '' : `; ${cached} passed before on the same files and did not run again`;
    const choices = [SHOW_OUTPUT, ...(cached === 0 ? [] : [RUN_AGAIN]), OPEN_PAGE];
    const shown =
      failed.length === 0
        ? window.showInformationMessage(`${title}: all checks passed${ON[of]}${kept}.`, ...choices)
        : window.showWarningMessage(`${title}: ${failed.join(', ')} failed${ON[of]}${kept}.`, ...choices);
    void shown.then((choice) => {
      if (choice === SHOW_OUTPUT) this.#output.show();
      if (choice === RUN_AGAIN) runAgain();
      openPageIf(choice, session.id);
    });
  }
}

function diagnosticOf({ line, column, severity, message }: Problem, check: string): Diagnostic {
  const at = new Position(Math.max(0, line - 1), Math.max(0, (column ?? 1) - 1));
  // A problem without a column marks the whole line.
  const range = new Range(at, column === null ? at.with({ character: WHOLE_LINE }) : at);
  const diagnostic = new Diagnostic(range, sanitize(message, MAX_MESSAGE_CHARACTERS), SEVERITIES[severity]);
  diagnostic.source = sanitize(check);
  return diagnostic;
}

/** The file of the workspace that a tool's path means; null where there is none. */
async function findFile(home: Pick<Homes, 'of'>, session: string, path: string): Promise<Uri | null> {
  for (const candidate of workspaceCandidates(path)) {
    const uri = workspaceUri(home, session, candidate);
    const exists = await Promise.resolve(workspace.fs.stat(uri)).then(
      () => true,
      () => false,
    );
    if (exists) return uri;
  }
  return null;
}
