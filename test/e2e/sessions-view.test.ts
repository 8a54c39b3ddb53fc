import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { User } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const ListSchema = z.object({
  sessions: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      status: z.string(),
      pinned: z.boolean(),
      archived: z.boolean(),
      runningTurn: z.string().nullable(),
    }),
  ),
});

/** Until a menu or a dialog is there to be photographed. */
const FADED_MS = 400;
/** Each look is a command of its own. */
const SEEN = { timeout: 15_000, interval: 250 };

let home: TestHome;
let person: User;

async function made(name: string, profile = 'shell'): Promise<string> {
  return CreatedSchema.parse(await home.runJson(['session', 'create', profile, '--name', name])).session.id;
}

async function listed(...only: string[]): Promise<z.infer<typeof ListSchema>['sessions']> {
  return ListSchema.parse(await home.runJson(['session', 'list', ...only])).sessions;
}

/** Rows of the view from top to bottom, by the first word of each. */
async function rows(): Promise<string[]> {
  const all = await person.page.locator('.sidebar .monaco-list-row .label-name').allTextContents();
  return all.map((one) => one.trim());
}

function told(story: () => Promise<void>, name: string): Promise<void> {
  return person.screenshotOnFailure(name, story);
}

beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  const short = shellProject('short', 'persistence: ephemeral\n');
  await home.runOk(['deploy', await writeProject(home.projects, short)]);
  const used = async (name: string, profile?: string): Promise<void> => {
    await home.runOk(['prompt', await made(name, profile), `echo ${name} > /workspace/mine`]);
  };
  await Promise.all([
    made('fresh'),
    used('at-work'),
    used('resting').then(() => home.runOk(['session', 'pause', 'resting'])),
    used('put-down').then(() => home.runOk(['session', 'stop', 'put-down'])),
    used('over', 'short').then(() => home.runOk(['session', 'stop', 'over'])),
  ]);
  person = await User.launch({ home: home.path, open: {} });
  await person.openSessionsView();
  await person.sessionRow('at-work').first().waitFor();
});
afterAll(async () => {
  await person.close();
  await home.dispose();
});

test('what can be done with a session fits its state', () =>
  told(async () => {
    const always = [
      'Run Turn',
      'Open Session Page',
      'Open Workspace',
      'Show History',
      'See Changes',
      'Review Changes',
      'Hand Off…',
      'Show Manifest',
      'Keep as Artifact…',
      'Artifacts…',
      'Workspace',
      'Snapshots',
      'Allow Host…',
      'Rename',
      'Pin',
      'Archive',
      'Move Session…',
      'Reset Workspace',
      'Delete',
    ];
    const more: Readonly<Record<string, { menu: string[]; inline: string[] }>> = {
      fresh: { menu: ['Open Terminal'], inline: ['Run Turn', 'Open Workspace'] },
      'at-work': {
        menu: ['Open Terminal', 'Pause', 'Stop'],
        inline: ['Run Turn', 'Pause', 'Open Workspace'],
      },
      resting: {
        menu: ['Open Terminal', 'Resume Session', 'Stop'],
        inline: ['Run Turn', 'Resume Session', 'Open Workspace'],
      },
      'put-down': {
        menu: ['Open Terminal', 'Resume Session'],
        inline: ['Run Turn', 'Resume Session', 'Open Workspace'],
      },
      over: { menu: ['Resume Session'], inline: ['Run Turn', 'Resume Session', 'Open Workspace'] },
    };
    for (const [name, { menu, inline }] of Object.entries(more)) {
      const row = person.sessionRow(name).first();
      expect(await person.listInlineActions(row), name).toEqual(inline);
      const offered = await person.listMenu(row);
      expect(offered.toSorted(), name).toEqual([...always, ...menu].toSorted());
    }
    await person.sessionRow('at-work').first().click({ button: 'right' });
    await person.page.locator('.monaco-menu').waitFor();
    await person.page.waitForTimeout(FADED_MS);
    await person.screenshot('session-menu-dark');
    await person.page.keyboard.press('Escape');
  }, 'menus'));

test('a filter by state, and a search, show what fits and say so', () =>
  told(async () => {
    await person.runCommand('Agent: Filter Sessions');
    await person.pickItem('paused');
    await person.screenshot('filter-dark');
    await person.page.keyboard.press('Enter');
    await expect.poll(rows, SEEN).toEqual(['Active', 'resting']);
    const said = person.page.locator('.sidebar .pane-body .message', { hasText: 'Filter: paused' });
    await said.waitFor();
    await person.screenshot('filtered-dark');
    await person.runCommand('Agent: Clear Session Filter');
    await expect.poll(rows, SEEN).toEqual(expect.arrayContaining(['Earlier', 'put-down', 'over', 'fresh']));
    await said.waitFor({ state: 'detached' });

    await person.runCommand('Agent: Search Sessions');
    await person.enterText('PUT-');
    await expect.poll(rows, SEEN).toEqual(['Earlier', 'put-down']);
    await person.runCommand('Agent: Search Sessions');
    await person.enterText('nothing is called so');
    const welcome = person.page.locator('.pane-body', { hasText: 'No sessions match' }).first();
    await welcome.waitFor();
    await person.screenshot('nothing-found-dark');
    await welcome.locator('.monaco-button', { hasText: 'Show All' }).click();
    await expect.poll(rows, SEEN).toContain('fresh');
  }, 'filter'));

test('renaming, pinning and putting away, with keys and from the menu', () =>
  told(async () => {
    await person.pressKeyOn(person.sessionRow('put-down').first(), 'F2');
    await person.enterText('picked-up');
    await person.sessionRow('picked-up').first().waitFor();
    expect((await listed()).map(({ name }) => name)).toContain('picked-up');

    await person.chooseFromMenu(person.sessionRow('over').first(), 'Pin');
    await expect.poll(rows, SEEN).toEqual(expect.arrayContaining(['Earlier', 'over', 'picked-up']));
    const earlier = async (): Promise<string[]> => {
      const all = await rows();
      return all.slice(all.indexOf('Earlier'), all.indexOf('Not Started'));
    };
    await expect.poll(earlier, SEEN).toEqual(['Earlier', 'over', 'picked-up']);
    await person
      .sessionRow(/over.*pinned/)
      .first()
      .waitFor();
    expect(await person.listMenu(person.sessionRow('over').first())).toContain('Unpin');
    await person.chooseFromMenu(person.sessionRow('over').first(), 'Unpin');
    await expect.poll(async () => (await listed()).some(({ pinned }) => pinned), SEEN).toBe(false);

    await person.chooseFromMenu(person.sessionRow('over').first(), 'Archive');
    await person.sessionRow('over').first().waitFor({ state: 'detached' });
    await person.runCommand('Agent: Filter Sessions');
    await person.pickItem('archived');
    await person.page.keyboard.press('Enter');
    await expect.poll(rows, SEEN).toEqual(['Earlier', 'over']);
    await person.chooseFromMenu(person.sessionRow('over').first(), 'Unarchive');
    await expect.poll(async () => (await listed('--archived')).length, SEEN).toBe(0);
    await person.runCommand('Agent: Clear Session Filter');
    await person.sessionRow('over').first().waitFor();
  }, 'rename'));

test('a number says how many turns have ended elsewhere, until they are opened; another how many run', () =>
  told(async () => {
    const row = person.sessionRow('at-work').first();
    // VS Code draws it by style.
    const number = (): Promise<string | undefined> =>
      row.evaluate((one: { querySelectorAll: (of: string) => Iterable<unknown> }) => {
        const { getComputedStyle: style } = globalThis as unknown as {
          getComputedStyle: (element: unknown, part: string) => { content: string };
        };
        return [...one.querySelectorAll('*')]
          .map((part) => style(part, '::after').content)
          .find((content) => /^"\d\+?"$/.test(content));
      });
    const running = person.page
      .locator('.activitybar .action-item', { hasText: '1' })
      .locator('.badge-content');
    await home.runOk(['prompt', 'at-work', 'true']);
    await expect.poll(number, SEEN).toBe('"1"');
    await home.runOk(['prompt', 'at-work', 'true']);
    await expect.poll(number, SEEN).toBe('"2"');
    await expect
      .poll(() => row.getAttribute('aria-label'), SEEN)
      .toContain('2 turns have ended since you last opened it');
    await person.page.mouse.move(700, 500);
    await person.screenshot('unread-dark');
    await person.chooseFromMenu(person.sessionRow('at-work').first(), 'Show History');
    await expect.poll(number, SEEN).toBeUndefined();
    await expect.poll(() => row.getAttribute('aria-label'), SEEN).not.toContain('since you last opened it');
    await person.runCommand('View: Close All Editors');

    await home.runOk(['prompt', 'at-work', 'sleep 600', '--no-wait']);
    await running.first().waitFor();
    await expect.poll(() => person.listInlineActions(row), SEEN).toEqual(['Cancel Turn', 'Open Workspace']);
    expect(await person.listMenu(row)).toEqual(expect.arrayContaining(['Cancel Turn', 'Pause', 'Stop']));
    await row.hover();
    await person.screenshot('running-dark');
    await row.locator('.actions .action-label[aria-label="Cancel Turn"]').click();
    await running.first().waitFor({ state: 'detached' });
    expect((await listed()).every(({ runningTurn }) => runningTurn === null)).toBe(true);
  }, 'unread'));

/** While the list changes: every look draws another order. */
async function amidChanges(story: () => Promise<void>): Promise<void> {
  const end = new AbortController();
  const changes = (async () => {
    for (let pin = true; !end.signal.aborted; pin = !pin)
      await home.runOk(['session', 'update', 'over', pin ? '--pin' : '--unpin']);
    await home.runOk(['session', 'update', 'over', '--unpin']);
  })();
  try {
    await story();
  } finally {
    end.abort();
    await changes;
  }
}

test('a key means the entry that the keyboard is on, whatever else happens in the list', () =>
  told(async () => {
    await amidChanges(async () => {
      for (const name of ['picked-up', 'at-work', 'picked-up', 'at-work', 'picked-up']) {
        await person.pressKeyOn(person.sessionRow(name).first(), 'Delete');
        await person.pressDialogButton(`Delete ${name}?`, 'Cancel');
      }
    });
    // Arrows move the keyboard and leave the selection where it was.
    const active = (await rows()).filter((name) => ['fresh', 'at-work', 'resting'].includes(name));
    await person.pressKeyOn(person.sessionRow(active[0] ?? '').first(), 'ArrowDown');
    await person.page.keyboard.press('Delete');
    await person.pressDialogButton(`Delete ${active[1] ?? ''}?`, 'Cancel');

    // On a heading the key means nothing: what is asked of the next entry comes, and nothing else.
    await person.pressKeyOn(person.sessionRow(active[0] ?? '').first(), 'ArrowUp');
    await person.page.locator('.sidebar .monaco-list-row.focused', { hasText: 'Active' }).waitFor();
    await person.page.keyboard.press('Delete');
    await person.pressKeyOn(person.sessionRow('picked-up').first(), 'F2');
    await person.quickInput('Rename picked-up').waitFor();
    expect(await person.page.locator('.monaco-dialog-box').count()).toBe(0);
    await person.page.keyboard.press('Escape');
  }, 'keys'));

test('Enter and a click show what a session did, live, and leave the keyboard in the view', () =>
  told(async () => {
    await person.pressKeyOn(person.sessionRow('at-work').first(), 'Enter');
    await person.tab('at-work transcript.txt').first().waitFor();
    const text = person.page.locator('.view-lines', { hasText: 'echo at-work' });
    await text.first().waitFor();
    await home.runOk(['prompt', 'at-work', 'echo one more line']);
    await person.page
      .locator('.view-lines', { hasText: /one\smore\sline/ })
      .first()
      .waitFor();
    await person.screenshot('transcript-dark');
    await person.sessionRow('resting').first().click();
    await person.tab('resting transcript.txt').first().waitFor();
    await person.page
      .locator('.sidebar .monaco-list:focus .monaco-list-row.focused', { hasText: 'resting' })
      .waitFor();
    await person.runCommand('View: Close All Editors');
  }, 'enter'));

test('several that are selected are put away, and deleted, together', () =>
  told(async () => {
    await Promise.all([made('spare-1'), made('spare-2')]);
    const spares = ['spare-1', 'spare-2'];
    for (const name of spares) await person.sessionRow(name).first().waitFor();
    await person.sessionRow('spare-1').first().click();
    await person
      .sessionRow('spare-2')
      .first()
      .click({ modifiers: ['Control'] });
    expect(await person.listMenu(person.sessionRow('spare-2').first())).toEqual(['Pin', 'Archive', 'Delete']);
    await person.page.keyboard.press('Delete');
    await person.dialog('Delete 2 sessions?').waitFor();
    await person.dialog('spare-1, spare-2').waitFor();
    await person.screenshot('delete-several-dark');
    await person.pressDialogButton('Delete 2 sessions?', 'Delete');
    for (const name of spares) await person.sessionRow(name).first().waitFor({ state: 'detached' });
    expect((await listed()).map(({ name }) => name)).not.toEqual(expect.arrayContaining(['spare-1']));
  }, 'several'));

test('deleting says what goes and what stays, and asks', () =>
  told(async () => {
    await person.pressKeyOn(person.sessionRow('picked-up').first(), 'Delete');
    await person.dialog('Delete picked-up?').waitFor();
    await person.dialog('A snapshot is kept for 7 days').waitFor();
    await person.screenshot('delete-dark');
    await person.pressDialogButton('Delete picked-up?', 'Cancel');
    expect((await listed()).map(({ name }) => name)).toContain('picked-up');
    await person.pressKeyOn(person.sessionRow('picked-up').first(), 'Delete');
    await person.pressDialogButton('Delete picked-up?', 'Delete');
    await person.sessionRow('picked-up').first().waitFor({ state: 'detached' });
    expect((await listed()).map(({ name }) => name)).not.toContain('picked-up');
  }, 'delete'));
