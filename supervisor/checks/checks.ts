import { createHash } from 'node:crypto';
import { type CheckResult, CheckResultSchema, type CheckSubject } from '../../protocol/checks.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Ids } from '../base/ids.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog } from '../history/event-log.ts';
import { newestImport } from '../history/newest-import.ts';
import type { CheckTrees } from '../reviews/check-trees.ts';
import type { Removal } from '../sessions/removal.ts';
import type { SessionCreation } from '../sessions/session-creation.ts';
import type { SnapshotCreation } from '../snapshots/snapshot-creation.ts';
import type { Database } from '../store/database.ts';
import type { ProfileRow, Profiles } from '../store/profiles.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { Snapshots } from '../store/snapshots.ts';
import type { Execs } from '../terminals/execs.ts';
import { KeptOutput } from './kept-output.ts';

const WORKSPACE = '/workspace';
const PAGE_EVENTS = 1000;

export interface ChecksOptions {
  readonly database: Database;
  readonly profiles: Pick<Profiles, 'getOrThrow'>;
  readonly snapshots: Pick<Snapshots, 'getOrThrow'>;
  readonly events: EventLog;
  readonly contents: Pick<Contents, 'insert'>;
  readonly execs: Pick<Execs, 'start'>;
  readonly snapshotCreation: Pick<SnapshotCreation, 'withCurrentTree'>;
  readonly checkTrees: CheckTrees;
  readonly creation: Pick<SessionCreation, 'insert'>;
  readonly removal: Pick<Removal, 'deleteSession'>;
  /** What the engine has under the name of an image. Errors: those of the engine. */
  readonly imageIdentity: (image: string) => Promise<string>;
  readonly ids: Ids;
  /** ms since 1970. */
  readonly now: () => number;
}

export interface CheckRequest {
  readonly name: string;
  readonly of: CheckSubject;
  /** Also if it passed on the same tree before. */
  readonly again: boolean;
  readonly signal: AbortSignal;
  /** Resolves when the client can take more. */
  readonly onOutput: (stream: 'stdout' | 'stderr', bytes: Buffer) => Promise<void>;
  readonly onProgress: (stage: string) => void;
}

/** What is judged, and where. */
interface Subject {
  readonly sessionId: string;
  readonly tree: string;
  readonly review: CheckResult['review'];
  readonly key: string | null;
}

export interface CheckOutcome {
  readonly check: CheckResult;
  /** It did not run: this is an earlier result. */
  readonly cached: boolean;
}

/**
 * Runs the checks of profiles. What is accepted in a review is checked in a session of its own, which is deleted afterwards, also by
 * the next supervisor: whatever a check writes, the tree that it judged stays as it is.
 */
export class Checks {
  readonly #options: ChecksOptions;

  constructor(options: ChecksOptions) {
    this.#options = options;
  }

  /**
   * Runs one check and records its result. One of what is accepted that passed with the same key is not run again. Errors: `not_found` without such a check or review, `cancelled`, `sandbox_lost`, those of
   * an exec.
   */
  async run(session: SessionRow, request: CheckRequest): Promise<CheckOutcome> {
    const { name, of } = request;
    const checks = this.#checksOf(session);
    const command = Object.hasOwn(checks, name) ? checks[name] : undefined;
    if (command === undefined) {
      const names = Object.keys(checks);
      throw new HoldfastError(
        'not_found',
        `The profile ${session.profile} has no check ${JSON.stringify(name)}`,
        {
          next:
            names.length === 0
              ? 'add some to holdfast.yaml (checks: { test: npm test }) and deploy it again'
              : `it has ${names.join(', ')}`,
        },
      );
    }
    switch (of) {
      case 'workspace':
        return await this.#checkWorkspace(session, command, request);
      case 'accepted':
        return await this.#checkAccepted(session, command, request);
    }
  }

  async #checkWorkspace(session: SessionRow, command: string, request: CheckRequest): Promise<CheckOutcome> {
    request.onProgress('Scanning the workspace');
    const tree = await this.#options.snapshotCreation.withCurrentTree(
      session.id,
      (_store, { root }) => Promise.resolve(root),
      { signal: request.signal },
    );
    const subject = { sessionId: session.id, tree, review: null, key: null };
    return { check: await this.#judge(session, subject, command, request), cached: false };
  }

  async #checkAccepted(session: SessionRow, command: string, request: CheckRequest): Promise<CheckOutcome> {
    const subject = await this.#forkAccepted(session, command, request);
    if ('checkId' in subject) return { check: subject, cached: true };
    try {
      return { check: await this.#judge(session, subject, command, request), cached: false };
    } finally {
      await this.#options.removal.deleteSession(subject.sessionId, 'its check has ended');
    }
  }

  /** The checks of the profile, each with its newest result. */
  list(
    session: SessionRow,
    of: CheckSubject | undefined,
  ): { name: string; command: string; last: CheckResult | null }[] {
    const newest = this.#newest(session.id, of);
    return Object.entries(this.#checksOf(session)).map(([name, command]) => ({
      name,
      command,
      last: newest.get(name) ?? null,
    }));
  }

  #checksOf({ profile }: SessionRow): Readonly<Record<string, string>> {
    return this.#options.profiles.getOrThrow(profile).config.checks ?? {};
  }

  #newest(sessionId: string, of: CheckSubject | undefined): Map<string, CheckResult> {
    const newest = new Map<string, CheckResult>();
    for (const result of this.#results(sessionId))
      if (of === undefined || result.of === of) newest.set(result.name, result);
    return newest;
  }

  #findPassed(sessionId: string, name: string, key: string): CheckResult | null {
    let passed: CheckResult | null = null;
    for (const result of this.#results(sessionId))
      if (result.of === 'accepted' && result.name === name && result.key === key)
        passed = result.exitCode === 0 ? result : null;
    return passed;
  }

  /** The oldest first. Not those of before an import: another home can write a result, and guess its key. */
  *#results(sessionId: string): Generator<CheckResult, void, undefined> {
    const { events } = this.#options;
    for (let after = newestImport(events, sessionId)?.seq ?? 0; ;) {
      const page = events.read(sessionId, { type: 'check.ended', after, limit: PAGE_EVENTS });
      for (const { data } of page) {
        const result = CheckResultSchema.safeParse(data).data;
        if (result !== undefined) yield result;
      }
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE_EVENTS) return;
      after = last.seq;
    }
  }

  /** A session whose workspace becomes the tree to judge before its first use; or the earlier result, if the check passed on that tree. */
  async #forkAccepted(
    session: SessionRow,
    command: string,
    { name, again, signal, onProgress }: CheckRequest,
  ): Promise<Subject | CheckResult> {
    const { checkTrees, profiles, snapshots, creation, imageIdentity } = this.#options;
    const { image } = profiles.getOrThrow(session.profile);
    const identity = await imageIdentity(image).catch(() => null);
    onProgress('Storing what is accepted');
    return await checkTrees.store(
      session,
      ({ reviewId, targetSnapshot, accepted, root, ignored }): Subject | CheckResult => {
        const from = { ...snapshots.getOrThrow(targetSnapshot), root, stateRoot: null };
        const profile = profiles.getOrThrow(session.profile);
        // It may have been deployed again since.
        const key =
          identity === null || profile.image !== image ? null : keyOf(root, command, identity, profile);
        const passed = again || key === null ? null : this.#findPassed(session.id, name, key);
        if (passed !== null) return passed;
        const fork = creation.insert(profile, { throwaway: true, from });
        return { sessionId: fork.id, tree: root, review: { id: reviewId, accepted, ignored }, key };
      },
      signal,
    );
  }

  async #judge(
    session: SessionRow,
    { sessionId, tree, review, key }: Subject,
    command: string,
    { name, of, signal, onOutput, onProgress }: CheckRequest,
  ): Promise<CheckResult> {
    const { database, events, contents, ids, now } = this.#options;
    onProgress(`Running ${name}`);
    const output = new KeptOutput();
    const began = now();
    const exitCode = await this.#execute(sessionId, command, signal, async (stream, bytes) => {
      output.add(bytes);
      await onOutput(stream, bytes);
    });
    const ms = Math.max(0, Math.round(now() - began));
    return database.transaction(() => {
      const content = contents.insert(session.id, output.bytes());
      const found = {
        name,
        command,
        of,
        tree,
        review,
        exitCode,
        ms,
        content,
        outputBytes: output.total,
        key,
      };
      const result: CheckResult = { checkId: ids.next('chk'), ...found };
      events.append(session.id, [{ type: 'check.ended', data: result }]);
      return result;
    });
  }

  /** The exit code. The command ends when the signal aborts. */
  async #execute(
    sessionId: string,
    command: string,
    signal: AbortSignal,
    output: (stream: 'stdout' | 'stderr', bytes: Buffer) => Promise<void>,
  ): Promise<number> {
    const exited = Promise.withResolvers<number | null>();
    const aborted = Promise.withResolvers<never>();
    const abort = (): void => aborted.reject(HoldfastError.from(signal.reason));
    aborted.promise.catch(() => undefined);
    signal.throwIfAborted();
    signal.addEventListener('abort', abort, { once: true });
    try {
      await this.#options.execs.start(
        sessionId,
        { command: ['sh', '-c', command], tty: null, stdin: false, env: {}, cwd: WORKSPACE },
        {
          output: (_execId, stream, bytes) => output(stream, bytes),
          exited: (_execId, exitCode) => {
            exited.resolve(exitCode);
            return Promise.resolve();
          },
          disconnected: aborted.promise.catch(() => undefined),
        },
      );
      const exitCode = await Promise.race([exited.promise, aborted.promise]);
      if (exitCode !== null) return exitCode;
      throw new HoldfastError('sandbox_lost', 'The check did not finish', { why: 'its sandbox was lost' });
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }
}

/** A new version of the profile comes with each deploy, whether it changes environment, limits, code or nothing. */
function keyOf(
  tree: string,
  command: string,
  identity: string,
  { name, incarnation, version }: ProfileRow,
): string {
  return createHash('sha256')
    .update(JSON.stringify([tree, command, identity, name, incarnation, version]))
    .digest('hex');
}
