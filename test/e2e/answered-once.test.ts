import { copyFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Locator } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { writeProject } from '../setup/profiles.ts';
import { User } from './harness/user.ts';

const AGENT = resolve(import.meta.dirname, '../fixtures/acp-agent/agent.mjs');
const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const WaitingSchema = z.object({ permissions: z.array(z.object({ id: z.string() })) });
const SEEN = { timeout: 60_000 };
const LATE = 'Your answer came later and does not count.';

let home: TestHome;
let session: string;
let persons: User[] = [];

beforeAll(async () => {
  home = await TestHome.create();
  const project = await writeProject(home.projects, {
    'holdfast.yaml':
      'name: asks\npersistence: persistent\nworkspace: { seed: false }\n' +
      'agent: { protocol: acp, command: [node, /agent/agent.mjs], state: [.acp-agent] }\n',
  });
  await copyFile(AGENT, join(project, 'agent.mjs'));
  await home.runOk(['deploy', project]);
  const created = await home.runJson(['session', 'create', 'asks', '--name', 'questions']);
  session = CreatedSchema.parse(created).session.id;
  const open = { folder: `holdfast://${session}.${home.id}/` };
  persons = await Promise.all([0, 1].map(() => User.launch({ home: home.path, open })));
  for (const person of persons) {
    await person.runCommand('Agent: Open Session Page');
    await person.webview.getByText('Nothing has happened yet').waitFor();
  }
});
afterAll(async () => {
  await Promise.all(persons.map((person) => person.close()));
  await home.dispose();
});

/** The question of an agent, as a window shows it. */
const question = (person: User, title: string): Locator =>
  person.webview.getByRole('region', { name: `The agent asks: Run ${title}` });
const answered = (person: User, how: string): Locator =>
  person.webview.locator('.mark', { hasText: `${how}: Run` });

/** The last one is asked in both windows. */
async function ask(title: string): Promise<void> {
  await home.runOk(['prompt', 'questions', `permission ${title}`, '--no-wait']);
  for (const person of persons) await question(person, title).waitFor();
}

/** The window of a page, as far as `hold` uses it. */
interface PageWindow {
  addEventListener(type: 'message', listener: (event: HeldEvent) => void, capture: true): void;
  removeEventListener(type: 'message', listener: (event: HeldEvent) => void, capture: true): void;
  dispatchEvent(event: object): void;
  MessageEvent: new (type: 'message', init: { data: unknown }) => object;
  release: () => void;
}
interface HeldEvent {
  readonly data: unknown;
  stopImmediatePropagation(): void;
}

/** Keeps from the page of a window what the extension says, until it is released: what a person sees there is old. */
async function hold(person: User): Promise<() => Promise<void>> {
  const body = person.webview.locator('body');
  await body.evaluate(() => {
    const page = globalThis as unknown as PageWindow;
    const said: unknown[] = [];
    const hear = (event: HeldEvent): void => {
      event.stopImmediatePropagation();
      said.push(event.data);
    };
    page.addEventListener('message', hear, true);
    page.release = () => {
      page.removeEventListener('message', hear, true);
      for (const data of said) page.dispatchEvent(new page.MessageEvent('message', { data }));
    };
  });
  return () => body.evaluate(() => (globalThis as unknown as PageWindow).release());
}

async function countAnswers(): Promise<number> {
  const events = await home.runOk(['session', 'events', session, '--type', 'permission.answered', '--json']);
  return events
    .trim()
    .split('\n')
    .filter((line) => line !== '').length;
}

test('of two windows that answer the same question, the first one answers, and the other one is told', async () => {
  const [first, second] = persons;
  if (first === undefined || second === undefined) throw new Error('There are two windows');
  await first.screenshotOnFailure('answered-once-first', () =>
    second.screenshotOnFailure('answered-once-second', async () => {
      await ask('one');
      const release = await hold(second);
      await question(first, 'one').getByRole('button', { name: 'Allow', exact: true }).click();
      await answered(first, 'Allowed').waitFor();
      await question(second, 'one').getByRole('button', { name: 'Reject', exact: true }).click();
      await release();
      for (const person of persons) await answered(person, 'Allowed').getByText('in VS Code').waitFor();
      await answered(second, 'Allowed').getByText(LATE).waitFor();
      await second.screenshot('answered-once-late-dark');
      expect(await first.webview.getByText(LATE).count()).toBe(0);

      // On the command line first.
      await ask('two');
      const { permissions } = WaitingSchema.parse(await home.runJson(['permission', 'list']));
      const releaseAgain = await hold(second);
      await home.runOk(['permission', 'answer', permissions[0]?.id ?? '', 'reject']);
      await question(second, 'two').getByRole('button', { name: 'Allow', exact: true }).click();
      await releaseAgain();
      for (const person of persons)
        await answered(person, 'Rejected').getByText('on the command line').waitFor();
      await answered(second, 'Rejected').getByText(LATE).waitFor();

      // Both at the same moment: it does not matter who.
      await ask('three');
      const press = (person: User, name: string): Promise<unknown> =>
        question(person, 'three')
          .getByRole('button', { name, exact: true })
          .click({ timeout: 5000 })
          .catch(() => null);
      await Promise.all([press(first, 'Allow'), press(second, 'Reject')]);
      const marks = (person: User): Promise<string[]> =>
        person.webview.locator('.mark', { hasText: 'Run three' }).locator('>> nth=0').allTextContents();
      for (const person of persons) await expect.poll(() => marks(person), SEEN).toHaveLength(1);
      const told = await Promise.all(persons.map(marks));
      const how = told.map(([text]) => /Allowed|Rejected/.exec(text ?? '')?.[0]);
      expect(how[0]).toBe(how[1]);
      await expect.poll(countAnswers, SEEN).toBe(3);

      for (const person of persons) {
        expect(await person.webview.getByRole('alert').count()).toBe(0);
        expect(await person.page.locator('.notification-list-item .codicon-error').count()).toBe(0);
      }
    }),
  );
});
