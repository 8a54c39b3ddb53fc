import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname } from 'node:path';
import { window } from 'vscode';
import type { Memento } from 'vscode';
import { type HandoffResult, applyHandoff } from '../../handoff/handoff.ts';
import { type HandoffPlan, type PlanOptions, planHandoff } from '../../handoff/plan.ts';
import { proposeMessage } from '../../handoff/commit.ts';
import type { Repository } from '../../handoff/repository.ts';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { HANDOFF_TARGETS, type HandoffTarget } from '../../protocol/handoff.ts';
import { formatCount } from '../base/format.ts';
import { withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { choosePlace, chooseReleased } from './choices.ts';
import { TARGETS, describeLeftOut } from './plan-text.ts';
import { chooseRepository, gitIn, openChosen, rememberRepository } from './repository-choice.ts';
import { showResult } from './results.ts';

export interface HandoffHost {
  readonly connection: Connection;
  readonly state: Memento;
}

/** Asks step by step, and hands over. Nothing is written before the last answer. Undefined where the person stopped. */
export async function handOff(host: HandoffHost, session: Session): Promise<HandoffResult | undefined> {
  const title = `Hand off ${sanitize(session.name === session.id ? session.profile : session.name, 60)}`;
  const to = await chooseTarget(title);
  if (to === undefined) return undefined;
  let repository: Repository | null = null;
  if (to !== 'dir') {
    const folder = await chooseRepository(host.state, title);
    if (folder === undefined) return undefined;
    repository = await openChosen(folder, host.connection, 'handoff');
    await rememberRepository(host.state, folder);
  }
  const place = to === 'dir' || to === 'patch' ? await choosePlace(to, session.name, title) : null;
  if (place === undefined) return undefined;
  const options = { session: session.id, to, repository, paths: [], opId: randomUUID() };
  const first = await plan(host, title, { ...options, released: [] });
  let current = first;
  try {
    const released = await chooseReleased(first, title);
    if (released === undefined) return undefined;
    if (released.size > 0)
      current = await plan(host, title, { ...options, released: [], releasedPaths: released });
    // What was let through was seen in the first plan's trees; another window may have accepted more meanwhile.
    const { base, target } = current.trees;
    if (base !== first.trees.base || target !== first.trees.target) {
      throw new HoldfastError('conflict', 'What is handed off has changed meanwhile', {
        next: 'hand off again',
      });
    }
    const message = await chooseMessage(current, to, title);
    if (message === undefined) return undefined;
    if (!(await confirm(current, to, repository, place))) return undefined;
    const result = await apply(host, title, current, {
      to,
      repository,
      message,
      folder: to === 'dir' ? place : null,
    });
    if (result.patch !== null && place !== null) await writeFile(place, result.patch);
    showResult(result, repository, place);
    return result;
  } finally {
    await first.contents.close();
    if (current !== first) await current.contents.close();
  }
}

async function chooseTarget(title: string): Promise<HandoffTarget | undefined> {
  const items = HANDOFF_TARGETS.map((to) => ({ ...TARGETS[to], to }));
  return (await window.showQuickPick(items, { title, placeHolder: 'Where do the changes go?' }))?.to;
}

async function plan(
  { connection }: HandoffHost,
  title: string,
  options: Omit<PlanOptions, 'signal' | 'onProgress'>,
): Promise<HandoffPlan> {
  return await withProgress(title, (report, signal) =>
    planHandoff(connection, { ...options, signal, onProgress: (stage) => report(sanitize(stage)) }),
  );
}

async function apply(
  { connection }: HandoffHost,
  title: string,
  planned: HandoffPlan,
  options: {
    readonly to: HandoffTarget;
    readonly repository: Repository | null;
    readonly message: string | null;
    readonly folder: string | null;
  },
): Promise<HandoffResult> {
  const { to, repository, message, folder } = options;
  return await withProgress(title, (report, signal) =>
    applyHandoff(connection, planned, {
      to,
      repository: repository === null ? null : { ...repository, git: gitIn(repository.git.folder, signal) },
      git: gitIn(tmpdir(), signal),
      message: message ?? undefined,
      folder: folder ?? undefined,
      signal,
      onProgress: (stage) => report(sanitize(stage)),
      now: () => Date.now(),
    }),
  );
}

/** The message of the commit; null where there is none, or for the proposed one. */
async function chooseMessage(
  planned: HandoffPlan,
  to: HandoffTarget,
  title: string,
): Promise<string | null | undefined> {
  if (to === 'tree' || to === 'dir' || planned.travels.length === 0) return null;
  const { sessionName, prompts } = planned.begun;
  const proposed = proposeMessage(sessionName, prompts);
  const typed = await window.showInputBox({
    title: `${title}: commit message`,
    value: proposed,
    prompt: 'The trailers that name the session and its manifest are added',
    validateInput: (text) => (text.trim() === '' ? 'A commit needs a message.' : undefined),
  });
  if (typed === undefined) return undefined;
  return typed === proposed ? null : typed;
}

async function confirm(
  planned: HandoffPlan,
  to: HandoffTarget,
  repository: Repository | null,
  place: string | null,
): Promise<boolean> {
  // `applyHandoff` says why nothing can be handed off.
  if (planned.travels.length === 0) return true;
  const HAND_OFF = 'Hand Off';
  const where = place ?? repository?.root ?? repository?.git.folder ?? '';
  const goal = to === 'patch' || to === 'dir' ? `${dirname(where)}/${basename(where)}` : where;
  const choice = await window.showInformationMessage(
    `Hand over ${formatCount(planned.travels.length, 'file')}: ${TARGETS[to].label} of ${sanitize(goal)}?`,
    { modal: true, detail: [TARGETS[to].detail, ...describeLeftOut(planned)].join('\n') },
    HAND_OFF,
  );
  return choice === HAND_OFF;
}
