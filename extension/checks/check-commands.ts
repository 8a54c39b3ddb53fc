import {
  Diagnostic,
  DiagnosticSeverity,
  Position,
  ProgressLocation,
  Range,
  languages,
  window,
  workspace,
  type CancellationToken,
  type DiagnosticCollection,
  type Disposable,
  type OutputChannel,
  type Uri,
} from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { locate, workspaceUri } from '../files/location.ts';
import type { Homes } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { pickSession } from '../sessions/pick-session.ts';
import { onlySessionInWindow } from '../sessions/session-window.ts';
import { workspaceCandidates } from '../terminals/path-references.ts';
import { type Problem, ProblemReader, stripEscapeSequences } from './problem-reader.ts';
import { runCommand } from './run-command.ts';

/** How much output of one check is shown. */
const MAX_OUTPUT_CHARACTERS = 2 ** 20;
const MAX_MESSAGE_CHARACTERS = 1000;
/** Longer than any line: VS Code clips the range to the line. */
const WHOLE_LINE = 1000;
const SHOW_OUTPUT = 'Show Output';

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

/** Runs the checks of a profile in the sandbox, and shows the problems that they report in the Problems view. */
export class CheckCommands implements Disposable {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #owned = new DisposableStore();
  readonly #diagnostics: DiagnosticCollection;
  #output: OutputChannel | undefined;

  constructor(connection: Connection, sessions: SessionList) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#diagnostics = this.#owned.add(languages.createDiagnosticCollection('holdfast'));
  }

  get handlers() {
    return {
      'holdfast.runChecks': (target, name) => this.#run(target, name),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  dispose(): void {
    this.#output?.dispose();
    this.#owned.dispose();
  }

  /** Runs all checks, or the one with this name. Returns the results. */
  async #run(target: unknown, name: unknown): Promise<CheckResult[] | undefined> {
    const session = await pickSession(this.#sessions, target ?? onlySessionInWindow(), {
      title: 'Run Checks',
    });
    if (session === undefined) return undefined;
    const { profiles } = await this.#connection.of(session.id).call('profile/list', {});
    const all = Object.entries(profiles.find((profile) => profile.name === session.profile)?.checks ?? {});
    const checks = typeof name === 'string' ? all.filter(([one]) => one === name) : all;
    if (checks.length === 0) {
      void window.showInformationMessage(
        `The profile ${sanitize(session.profile)} has no checks. ` +
          'Add some to its holdfast.yaml (checks: { test: npm test }) and deploy it again.',
      );
      return [];
    }
    this.#clear(session.id);
    const results = await window.withProgress(
      {
        location: ProgressLocation.Notification,
        title: `Running checks in ${sanitize(sessionTitle(session))}`,
        cancellable: true,
      },
      async (progress, token) => {
        const finished: CheckResult[] = [];
        for (const [check, command] of checks) {
          progress.report({ message: sanitize(check), increment: 100 / (checks.length + 1) });
          finished.push(await this.#check(session, check, command, token));
        }
        return finished;
      },
    );
    this.#report(session, results);
    return results;
  }

  async #check(
    session: Session,
    name: string,
    command: string,
    token: CancellationToken,
  ): Promise<CheckResult> {
    const output = (this.#output ??= window.createOutputChannel('Holdfast Checks'));
    const problems: Problem[] = [];
    const reader = new ProblemReader((problem) => problems.push(problem));
    let characters = 0;
    output.appendLine(`[${sessionTitle(session)}] ${name}: ${command}`);
    const exitCode = await runCommand(this.#connection, {
      session: session.id,
      command: ['sh', '-c', command],
      token,
      onOutput: (text) => {
        reader.read(text);
        if (characters <= MAX_OUTPUT_CHARACTERS) {
          output.append(stripEscapeSequences(text));
          if (characters + text.length > MAX_OUTPUT_CHARACTERS)
            output.appendLine('\n… the rest of the output is not shown');
        }
        characters += text.length;
      },
    });
    reader.end();
    output.appendLine(`[${sessionTitle(session)}] ${name}: exit code ${exitCode}`);
    return { name, exitCode, problems: await this.#show(session.id, name, problems) };
  }

  /** Shows the problems that are in files of the workspace. Returns how many. */
  async #show(session: string, check: string, problems: readonly Problem[]): Promise<number> {
    const uris = new Map<string, Promise<Uri | null>>();
    const placed = await Promise.all(
      problems.map(async (problem) => {
        const uri = uris.get(problem.path) ?? findFile(this.#connection, session, problem.path);
        uris.set(problem.path, uri);
        return { problem, uri: await uri };
      }),
    );
    const byFile = new Map<string, { readonly uri: Uri; readonly found: Diagnostic[] }>();
    for (const { problem, uri } of placed) {
      if (uri === null) continue;
      const file = byFile.get(uri.toString()) ?? { uri, found: [] };
      byFile.set(uri.toString(), file);
      file.found.push(diagnosticOf(problem, check));
    }
    for (const { uri, found } of byFile.values())
      this.#diagnostics.set(uri, [...(this.#diagnostics.get(uri) ?? []), ...found]);
    return placed.filter(({ uri }) => uri !== null).length;
  }

  #clear(session: string): void {
    const old: Uri[] = [];
    this.#diagnostics.forEach((uri) => {
      const location = locate(uri);
      if (location.kind !== 'nowhere' && location.session === session) old.push(uri);
    });
    for (const uri of old) this.#diagnostics.delete(uri);
  }

  #report(session: Session, results: readonly CheckResult[]): void {
    const failed = results.filter(({ exitCode }) => exitCode !== 0).map(({ name }) => sanitize(name));
    const title = sanitize(sessionTitle(session));
    const shown =
      failed.length === 0
        ? window.showInformationMessage(`${title}: all checks passed.`, SHOW_OUTPUT)
        : window.showWarningMessage(`${title}: ${failed.join(', ')} failed.`, SHOW_OUTPUT);
    void shown.then((choice) => {
      if (choice === SHOW_OUTPUT) this.#output?.show();
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
