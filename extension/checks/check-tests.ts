import { TestRunProfileKind, TestRunRequest, tests } from 'vscode';
import type { Disposable, TestController, TestItem, TestRunProfile } from 'vscode';
import type { CheckSubject } from '../../protocol/checks.ts';
import type { Session } from '../../protocol/entities.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import type { Host } from '../connection/host.ts';
import { sessionSubtitle, sessionTitle } from '../sessions/listing.ts';
import type { SessionList } from '../sessions/session-list.ts';
import type { CheckRuns } from './check-runs.ts';
import { runTests } from './test-run.ts';
import type { TestedCheck } from './test-run.ts';

/** Another machine says how many sessions and checks it has. */
const MAX_ITEMS = 2000;

export interface CheckTestsOptions {
  readonly connection: Connection;
  readonly host: Host;
  readonly sessions: SessionList;
  readonly runs: () => CheckRuns;
}

type Commands = ReadonlyMap<string, string>;

/**
 * The checks in VS Code's Testing view: an item for each session whose profile has checks, with a child for each check. The view appears with
 * the first of them. Sessions come from the feeds of the hosts, profiles are read when a feed reports a change of them.
 */
export class CheckTests implements Disposable {
  readonly #options: CheckTestsOptions;
  readonly #owned = new DisposableStore();
  /** The checks of each profile with checks. */
  readonly #profiles = new Map<HostConnection, ReadonlyMap<string, Commands>>();
  /** The newest question for a host's profiles: an earlier answer says less. */
  readonly #questions = new Map<HostConnection, object>();
  readonly #checks = new WeakMap<TestItem, Omit<TestedCheck, 'item'>>();
  #controller: TestController | undefined;

  constructor(options: CheckTestsOptions) {
    this.#options = options;
    const { connection, host, sessions } = options;
    this.#owned.add(sessions.onDidChange(() => this.#update()));
    this.#owned.add(host.onDidChangeProfiles((changed) => void this.#readProfiles(changed)));
    // A question that a broken connection left without an answer.
    this.#owned.add(connection.onDidConnect(() => this.#readUnknown()));
    this.#readUnknown();
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #readUnknown(): void {
    for (const host of this.#options.connection.known)
      if (!this.#questions.has(host)) void this.#readProfiles(host);
  }

  async #readProfiles(host: HostConnection): Promise<void> {
    const { peer } = host;
    if (peer === undefined) return;
    const question = {};
    this.#questions.set(host, question);
    try {
      const { profiles } = await peer.call('profile/list', {});
      if (this.#questions.get(host) !== question) return;
      const checked = profiles.map(({ name, checks }) => [name, new Map(Object.entries(checks))] as const);
      this.#profiles.set(host, new Map(checked.filter(([, checks]) => checks.size > 0)));
      this.#update();
    } catch {
      // The state of the connection says what is wrong. The next connection asks again.
      if (this.#questions.get(host) === question) this.#questions.delete(host);
    }
  }

  /** Makes the items those of the sessions that there are now. */
  #update(): void {
    const wanted = this.#wanted();
    if (wanted.size === 0 && this.#controller === undefined) return;
    this.#controller ??= this.#createController();
    const { items } = this.#controller;
    removeOthers(items, new Set(wanted.keys()));
    for (const [id, { session, commands }] of wanted) {
      const item = items.get(id) ?? this.#controller.createTestItem(id, '');
      rename(item, sessionTitle(session), sessionSubtitle(session));
      this.#fill(this.#controller, item, session, commands);
      items.add(item);
    }
  }

  #fill(controller: TestController, parent: TestItem, session: Session, commands: Commands): void {
    // In JSON: VS Code refuses an id with a NUL.
    const ids = new Map([...commands].map(([name, command]) => [JSON.stringify(name), { name, command }]));
    removeOthers(parent.children, new Set(ids.keys()));
    for (const [id, check] of ids) {
      const item = parent.children.get(id) ?? controller.createTestItem(id, '');
      rename(item, check.name, check.command);
      this.#checks.set(item, { session, ...check });
      parent.children.add(item);
    }
  }

  /** Those that were used last, where there are too many. */
  #wanted(): ReadonlyMap<string, { readonly session: Session; readonly commands: Commands }> {
    const { connection, sessions } = this.#options;
    const wanted = new Map<string, { readonly session: Session; readonly commands: Commands }>();
    const all = [...(sessions.current ?? [])].sort((a, b) => (a.lastActiveAt < b.lastActiveAt ? 1 : -1));
    let left = MAX_ITEMS;
    for (const session of all) {
      if (session.status === 'deleted' || session.archived) continue;
      const commands = this.#profiles.get(connection.of(session.id))?.get(session.profile);
      if (commands === undefined || commands.size >= left) continue;
      left -= 1 + commands.size;
      wanted.set(session.id, { session, commands });
    }
    return wanted;
  }

  #createController(): TestController {
    const controller = this.#owned.add(tests.createTestController('holdfast.checks', 'Holdfast Checks'));
    const offer = (label: string, of: CheckSubject): void => {
      const profile: TestRunProfile = controller.createRunProfile(
        label,
        TestRunProfileKind.Run,
        (request) => this.#run(controller, request, { of, profile, again: false }),
        of === 'workspace',
      );
      this.#owned.add(profile);
    };
    offer('Run on the Workspace', 'workspace');
    offer('Run on the Accepted Tree', 'accepted');
    return controller;
  }

  async #run(
    controller: TestController,
    request: TestRunRequest,
    how: { readonly of: CheckSubject; readonly profile: TestRunProfile; readonly again: boolean },
  ): Promise<void> {
    await runTests(controller.createTestRun(request), this.#options.runs(), {
      ...{ of: how.of, again: how.again, checks: this.#chosen(controller, request) },
      runAgain: (cached) => {
        const items = cached.map(({ item }) => item);
        const again = new TestRunRequest(items, undefined, how.profile);
        void this.#run(controller, again, { ...how, again: true });
      },
    });
  }

  #chosen({ items }: TestController, { include, exclude }: TestRunRequest): TestedCheck[] {
    const left = new Set(exclude);
    const chosen = new Map<TestItem, TestedCheck>();
    const add = (item: TestItem): void => {
      if (left.has(item)) return;
      const check = this.#checks.get(item);
      if (check !== undefined) chosen.set(item, { item, ...check });
      item.children.forEach(add);
    };
    if (include === undefined) items.forEach(add);
    else include.forEach(add);
    return [...chosen.values()];
  }
}

function removeOthers(items: TestController['items'], kept: ReadonlySet<string>): void {
  const others: string[] = [];
  items.forEach(({ id }) => {
    if (!kept.has(id)) others.push(id);
  });
  for (const id of others) items.delete(id);
}

/** Each change of a label is a message to the window. */
function rename(item: TestItem, label: string, description: string): void {
  const [shownLabel, shownDescription] = [sanitize(label), sanitize(description)];
  if (item.label !== shownLabel) item.label = shownLabel;
  if (item.description !== shownDescription) item.description = shownDescription;
}
