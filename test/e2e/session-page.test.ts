import { copyFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { User } from './harness/user.ts';

const AGENT = resolve(import.meta.dirname, '../fixtures/acp-agent/agent.mjs');
const WaitingSchema = z.object({ permissions: z.array(z.object({ id: z.string(), title: z.string() })) });
const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const SEEN = { timeout: 30_000 };
/** VS Code keeps what a page saved some seconds after it did. */
const KEPT_MS = 6_000;

let home: TestHome;
let session: string;
let person: User;

beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
  const created = await home.runJson(['session', 'create', 'shell', '--name', 'notes']);
  session = CreatedSchema.parse(created).session.id;
  person = await User.launch({ home: home.path, open: { folder: `holdfast://${session}.${home.id}/` } });
});
afterAll(async () => {
  await person.close();
  await home.dispose();
});

test('a person follows a turn on the page of its session while the window reloads and the supervisor dies', () =>
  person.screenshotOnFailure('session-page', async () => {
    await person.runCommand('Agent: Open Session Page');
    const page = person.webview;
    const box = page.getByRole('textbox', { name: 'Prompt for the agent' });
    await page.getByText('Nothing has happened yet').waitFor();

    await box.fill(
      'echo started; until [ -e /workspace/go ]; do sleep 0.2; done; echo "<b>done</b>"; echo x > /workspace/made',
    );
    await box.press('Enter');
    await page.locator('.output.stdout', { hasText: 'started' }).waitFor();
    await page.getByRole('status').getByText('Working…').waitFor();
    await box.fill('echo "the next one"');
    await box.press('Enter');
    await page.getByRole('list', { name: 'Prompts that wait' }).getByText('the next one').waitFor();
    await box.fill('not sent yet');
    await person.screenshot('session-page-running-dark');
    await person.page.waitForTimeout(KEPT_MS);

    await person.reload();
    await page.locator('.output.stdout', { hasText: 'started' }).waitFor();
    await expect.poll(() => box.inputValue(), SEEN).toBe('not sent yet');
    const queue = page.getByRole('list', { name: 'Prompts that wait' });
    await queue.getByText('the next one').waitFor();
    await person.tab('notes – running').first().waitFor();

    // The draft waits as well, until the person takes it back; what waits before it is edited in its place.
    await box.press('Enter');
    await queue.getByText('not sent yet').waitFor();
    await queue.getByRole('button', { name: 'Edit this prompt' }).first().click();
    await expect.poll(() => box.inputValue(), SEEN).toBe('echo "the next one"');
    await box.fill('echo "the next one, edited"');
    await box.press('Enter');
    await queue.getByText('the next one, edited').waitFor();
    await queue.getByRole('button', { name: 'Take this prompt back' }).last().click();
    await queue.getByText('not sent yet').waitFor({ state: 'detached' });

    // The turn goes on without a supervisor, and the page with the next one.
    process.kill(await home.supervisorPid(), 'SIGKILL');
    await page
      .getByRole('status')
      .getByText(/Connecting to the supervisor|supervisor/)
      .first()
      .waitFor();
    await home.runOk(['exec', session, 'touch', '/workspace/go']);
    await page.locator('.output.stdout', { hasText: '<b>done</b>' }).waitFor();
    await page.locator('.output.stdout', { hasText: 'the next one, edited' }).waitFor();
    await expect.poll(() => page.locator('.end .how', { hasText: 'Done' }).count(), SEEN).toBe(2);
    await person.page.locator('.tab', { hasText: /^notes$/ }).waitFor();
    await person.screenshot('session-page-done-dark');

    await page.getByRole('button', { name: 'See Changes' }).first().click();
    await person.tab('notes:').first().waitFor();
    await person.screenshot('session-page-changes-dark');
  }));

test('the page survives the death of its supervisor, and may be opened before the next one is there', () =>
  person.screenshotOnFailure('session-page-supervisor', async () => {
    await person.runCommand('Agent: Open Session Page');
    const page = person.webview;
    await page.locator('.output.stdout', { hasText: 'the next one' }).waitFor();
    await home.runOk(['supervisor', 'stop']);
    await page.getByRole('button', { name: 'Connect' }).waitFor();
    await person.tab('notes:').first().click();
    await page.locator('header').waitFor({ state: 'detached' });
    await person.page.locator('.tab', { hasText: /^notes$/ }).click();
    await page.getByRole('button', { name: 'Connect' }).waitFor();
    await home.runOk(['prompt', session, 'echo "after the death"']);
    await page.locator('.output.stdout', { hasText: 'after the death' }).waitFor();
    await page.getByRole('tab', { name: 'Snapshots' }).click();
    await page.getByRole('listitem').filter({ hasText: 'Before a turn' }).first().waitFor();
    await page.getByRole('tab', { name: 'Manifest' }).click();
    await page.getByText('Signed with the key of this home').waitFor();
    await page.getByText('4 (3 succeeded, 1 cancelled)').first().waitFor();
    await person.screenshot('session-page-manifest-dark');
    await page.getByRole('tab', { name: 'Conversation' }).click();
    const box = page.getByRole('textbox', { name: 'Prompt for the agent' });
    await box.fill('');
    await box.pressSequentially('cat @ma');
    await page.getByRole('option', { name: 'made' }).waitFor();
    await person.screenshot('session-page-mention-dark');
    await box.press('Tab');
    await expect.poll(() => box.inputValue(), SEEN).toBe('cat @made ');
    await box.fill('');
  }));

test('a permission is answered on the page, and the agent continues', () =>
  person.screenshotOnFailure('session-page-permission', async () => {
    const project = await writeProject(home.projects, {
      'holdfast.yaml':
        'name: asks\npersistence: persistent\nworkspace: { seed: false }\n' +
        'agent: { protocol: acp, command: [node, /agent/agent.mjs], state: [.acp-agent] }\n',
    });
    await copyFile(AGENT, join(project, 'agent.mjs'));
    await home.runOk(['deploy', project]);
    await home.runOk(['session', 'create', 'asks', '--name', 'questions']);
    await person.runCommand('View: Close All Editors');
    await person.openSessionsView();
    await person.chooseFromMenu(person.sessionRow('questions').first(), 'Open Session Page');
    const page = person.webview;
    const box = page.getByRole('textbox', { name: 'Prompt for the agent' });
    await page.getByText('Nothing has happened yet').waitFor();
    await box.fill('say before\npermission make\nsay after');
    await box.press('Enter');
    await page.getByText('The agent asks for permission').waitFor();
    await person.screenshot('session-page-permission-dark');
    await page.locator('.permission .actions button.primary').click();
    await page.locator('.message', { hasText: 'after' }).waitFor();
    await page.locator('.mark', { hasText: 'Allowed' }).first().waitFor();
    await expect.poll(() => page.locator('.end .how', { hasText: 'Done' }).count(), SEEN).toBe(1);
    await person.screenshot('session-page-answered-dark');
  }));

test('a session that waits is notified once, counted, and answered without its page', () =>
  person.screenshotOnFailure('session-page-inbox', async () => {
    const inbox = person.page.locator('.sidebar .monaco-list-row .label-name');
    const groups = async (): Promise<string[]> => (await inbox.allTextContents()).map((one) => one.trim());
    await person.runCommand('View: Close All Editors');
    await person.openSessionsView();
    await home.runOk(['prompt', 'questions', 'permission $(trash) one', '--no-wait']);
    const told = person.toast('questions waits for you: Run $ (trash) one');
    await told.first().waitFor();
    await person.waitForStatus('1 waiting');
    await expect
      .poll(async () => (await groups()).slice(0, 2), SEEN)
      .toEqual(['Waiting for you', 'questions']);
    await person.page.locator('.activitybar [aria-label*="1 session waits for you"]').first().waitFor();
    await person.screenshot('inbox-waiting-dark');
    expect(await told.count()).toBe(1);
    await person.pressToastButton('questions waits for you', 'Answer…');
    await person.quickInput('questions asks: Run $ (trash) one').waitFor();
    await person.screenshot('inbox-answer-dark');
    await person.pickItem('allows it this time');
    await person.page.locator('.statusbar-item', { hasText: 'questions: answered' }).first().waitFor();
    await expect.poll(async () => (await groups())[0], SEEN).toBe('Active');
    await person.page.locator('.statusbar-item', { hasText: '1 waiting' }).waitFor({ state: 'detached' });

    // Answered on the command line while the question is open here.
    await home.runOk(['prompt', 'questions', 'permission two', '--no-wait']);
    await person.waitForStatus('1 waiting');
    await person.runCommand('Agent: Answer Permission');
    await person.quickInput('questions asks: Run two').waitFor();
    const { permissions } = WaitingSchema.parse(await home.runJson(['permission', 'list']));
    expect(permissions.map(({ title }) => title)).toEqual(['Run two']);
    await home.runOk(['permission', 'answer', permissions[0]?.id ?? '', 'reject']);
    await person.toast('No answer is needed any more to “Run two”').first().waitFor();
    await person.quickInput('questions asks').waitFor({ state: 'hidden' });

    // The page says it by itself.
    await person.clearToasts();
    await home.runOk(['prompt', 'questions', 'permission three', '--no-wait']);
    await person.page.locator('.statusbar-item', { hasText: '1 waiting' }).first().click();
    await person.webview.getByText('Run three').first().waitFor();
    await person.clearToasts();
    await person.webview.locator('.permission .actions button.primary').click();
    await person.page.locator('.statusbar-item', { hasText: '1 waiting' }).waitFor({ state: 'detached' });
    await home.runOk(['prompt', 'questions', 'permission four', '--no-wait']);
    await person.waitForStatus('1 waiting');
    await person.webview.locator('.permission .actions button.primary').click();
    await person.page.locator('.statusbar-item', { hasText: '1 waiting' }).waitFor({ state: 'detached' });
    // It would still be there.
    expect(await person.toast('waits for you').count()).toBe(0);

    // The home page answers it too, where its card stands.
    await person.runCommand('View: Close All Editors');
    await home.runOk(['prompt', 'questions', 'permission five', '--no-wait']);
    await person.waitForStatus('1 waiting');
    await person.runCommand('Agent: Open Home');
    const asks = person.webview.getByRole('region', { name: 'questions asks: Run five' });
    await asks.locator('button.primary').waitFor();
    await person.clearToasts();
    await person.screenshot('home-page-asks-dark');
    await asks.locator('button.primary').click();
    await person.page.locator('.statusbar-item', { hasText: '1 waiting' }).waitFor({ state: 'detached' });
    await asks.waitFor({ state: 'detached' });

    // A first prompt with a file: it waits in the window until there is a session.
    await person.webview.getByRole('combobox').selectOption({ label: 'asks' });
    const first = person.webview.getByRole('textbox', { name: 'First prompt' });
    await first.fill('attached');
    const chooser = person.page.waitForEvent('filechooser');
    await person.webview.getByRole('button', { name: 'Attach files' }).click();
    const notes = {
      name: 'notes.md',
      mimeType: 'text/markdown',
      buffer: Buffer.from('# The zebra crossing'),
    };
    await (await chooser).setFiles(notes);
    const attached = person.webview.getByRole('list', { name: 'Attachments' });
    await attached.getByText('notes.md').waitFor();
    await person.webview.getByRole('button', { name: 'Start' }).click();
    await attached.waitFor({ state: 'detached' });
    await expect.poll(() => home.runOk(['session', 'search', 'zebra crossing']), SEEN).toMatch(/prompt/);

    await person.runCommand('View: Close All Editors');
    await person.sessionRow('notes').first().click();
    await person.tab('notes transcript.txt').first().waitFor();
    await person.page.locator('.editor-actions [aria-label*="Open Session Page"]').first().click();
    await person.webview.getByText('after the death').first().waitFor();
  }));

test('a question on the page is answered once: on the command line or on the page, whichever is first', () =>
  person.screenshotOnFailure('session-page-answered-once', async () => {
    await person.runCommand('View: Close All Editors');
    await person.openSessionsView();
    await person.chooseFromMenu(person.sessionRow('questions').first(), 'Open Session Page');
    const page = person.webview;
    await page.getByRole('heading', { name: 'questions' }).waitFor();
    await person.clearToasts();
    const question = (title: string) => page.getByRole('region', { name: `The agent asks: Run ${title}` });
    const mark = (text: string) => page.locator('.mark', { hasText: text });
    /** The id of the question, once the page shows it. */
    const ask = async (title: string): Promise<string> => {
      await home.runOk(['prompt', 'questions', `permission ${title}`, '--no-wait']);
      await question(title).waitFor();
      const { permissions } = WaitingSchema.parse(await home.runJson(['permission', 'list', 'questions']));
      expect(permissions.map((one) => one.title)).toEqual([`Run ${title}`]);
      return permissions[0]?.id ?? '';
    };

    const countAnswers = async (): Promise<number> => {
      const asked = ['session', 'events', 'questions', '--type', 'permission.answered', '--json'];
      return (await home.runOk(asked)).trim().split('\n').length;
    };
    const before = await countAnswers();

    // The command line first: the page no longer asks, and says where the answer came from.
    await home.runOk(['permission', 'answer', await ask('lint'), 'reject']);
    await mark('Rejected: Run lint · on the command line').waitFor();
    await question('lint').waitFor({ state: 'detached' });

    // The page first: the command line fails, and says what the answer was and where it was given.
    const id = await ask('format');
    await question('format').getByRole('button', { name: 'Allow', exact: true }).click();
    await mark('Allowed: Run format · in VS Code').waitFor();
    const late = await home.run(['permission', 'answer', id, 'reject']);
    expect(late.code).toBe(1);
    expect(late.stderr).toContain(`error conflict: ${id} was answered before`);
    expect(late.stderr).toMatch(/the answer was Allow\b.*, given in VS Code/);

    // The agent heard each answer once, the one that counts.
    await page.locator('.message', { hasText: '[lint: no]' }).waitFor();
    await page.locator('.message', { hasText: '[format: once]' }).waitFor();
    expect(await countAnswers()).toBe(before + 2);
    expect(await page.getByRole('alert').count()).toBe(0);
  }));
