import { execFileSync } from 'node:child_process';
import { copyFileSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Cuts } from '../fixtures/hosts/cuts.ts';
import { ASKS_CODES } from '../fixtures/hosts/one-time-codes.ts';
import { SSHD, SshServer } from '../fixtures/hosts/ssh-server.ts';
import { type GitIn, commitProject } from '../setup/git-project.ts';
import { writeProject } from '../setup/profiles.ts';
import { makeRunFolder } from '../setup/run-folders.ts';
import { registerHome } from '../setup/run-homes.ts';
import { TestHome } from '../setup/test-home.ts';
import { type User, journey } from './harness/user.ts';

const AGENT = resolve(import.meta.dirname, '../fixtures/acp-agent/agent.mjs');
const PROGRAM = resolve(import.meta.dirname, '../../scripts/holdfast.cjs');
const PASSPHRASE = 'correct horse';
/** The other machine asks for a one-time code as well, where it can: one for each login. */
const CODES = ['246810', '135791'];
const SETTLED_MS = 8_000;
const SEEN = { timeout: 60_000 };
const PROFILE = `name: task
persistence: persistent
agent: { protocol: acp, command: [node, /agent/.agent/agent.mjs], state: [.acp-agent] }
credentials: [{ host: api.invalid, secret: BOX_KEY, as: bearer, url: BOX_URL }]
`;
/** Without the secret the answer is 401; with it the request is made, to a host that is nowhere. */
const ASK_API = `curl -s -o answer -w 'status %{http_code}.' "$BOX_URL"; rm answer`;

/** The other machine uses the engine and the Node of this one. */
function farEnvironment(): Record<string, string> {
  const { DOCKER_HOST } = process.env;
  return {
    PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
    ...(DOCKER_HOST === undefined ? {} : { DOCKER_HOST }),
  };
}

/** Writes the project of a person: a git repository with a profile and an agent. */
async function writeRepository(home: TestHome): Promise<{ project: string; git: GitIn }> {
  const project = await writeProject(home.projects, { 'holdfast.yaml': PROFILE, 'notes.txt': 'to do\n' });
  execFileSync('mkdir', [join(project, '.agent')]);
  copyFileSync(AGENT, join(project, '.agent/agent.mjs'));
  return { project, git: commitProject(project) };
}

/** Connects to the host by its name, and answers what ssh asks. `codes`: what is entered as the one-time code. */
async function connect(person: User, asks: false | { readonly codes: readonly string[] }): Promise<void> {
  // A list closes when a view that is still loading takes the focus.
  for (let tries = 1; ; tries += 1) {
    await person.runCommand('Agent: Connect to Host');
    try {
      await person.quickPick('build-box').first().click({ timeout: 5_000 });
      break;
    } catch (error) {
      if (tries === 4) throw error;
    }
  }
  const answer = async (prompt: RegExp, text: string): Promise<void> => {
    await person.quickInput('Connect to build-box').getByText(prompt).first().waitFor(SEEN);
    expect(await person.page.locator('.quick-input-widget input[type=password]').count()).toBe(1);
    await person.enterText(text);
  };
  if (asks !== false) {
    await answer(/^Enter passphrase for key/, PASSPHRASE);
    for (const [n, code] of (ASKS_CODES ? asks.codes : []).entries())
      await answer(n === 0 ? /^\(\S+\) Password:/ : /^Asked again, the last answer may be wrong: /, code);
  }
  await person.toast('Connected to build-box').first().waitFor({ timeout: 120_000 });
}

test.skipIf(SSHD === undefined)(
  'a laptop without Docker works on a machine 50 ms away: connects, begins, edits, asks, is cut off, reviews, hands off, leaves and comes back (needs sshd)',
  { timeout: 600_000 },
  async ({ onTestFinished }) => {
    const server = await SshServer.start(SSHD ?? '', {
      environment: farEnvironment(),
      passphrase: PASSPHRASE,
      ...(ASKS_CODES ? { codes: CODES } : {}),
    });
    const person = makeRunFolder('holdfast-person-');
    const cuts = new Cuts(join(server.folder, 'cuts'));
    const socket = join(person, 'docker.sock');
    const env = {
      ...server.configuredAs('build-box', person, { delayMs: 25, jitterMs: 5, cutsFile: cuts.file }),
      DOCKER_HOST: `unix://${socket}`,
    };
    const home = await TestHome.create(env);
    onTestFinished(async () => {
      await home.run(['host', 'rm', 'build-box']);
      // Straight there, because a login would ask.
      const there = { ...process.env, HOLDFAST_HOME: server.farHome };
      execFileSync(process.execPath, [PROGRAM, 'purge', '--force'], { env: there, stdio: 'ignore' });
      // Only now this machine has an engine, which removing a home needs.
      await home.run(['supervisor', 'stop']);
      symlinkSync('/var/run/docker.sock', socket);
      // A supervisor that has just found its engine still prepares itself; it is not ended in the middle of that.
      await home.runOk(['profiles']);
      await sleep(SETTLED_MS);
      await home.dispose();
      await server.stop();
      execFileSync('rm', ['-r', person]);
    });
    const { project, git } = await writeRepository(home);
    const head = git('rev-parse', 'HEAD');
    const farRun = (...args: string[]): Promise<string> => home.runOk([...args, '--host', 'build-box']);
    await journey(
      'remote-host',
      {
        home: home.path,
        open: (code) => ({ folder: code.remote(project) }),
        settings: { 'security.workspace.trust.enabled': false },
        env,
      },
      async (user) => {
        const { page } = user;
        const framed = user.webview;

        await connect(user, { codes: ['000000', ...CODES.slice(0, 1)] });
        await user.screenshot('remote-connected-dark');
        await user.pressToastButton('Connected to build-box', 'New Session');
        await user.quickInput('New Session on build-box').waitFor();
        await user.pickItem('deploy this folder and create a session');
        await user.toast('New session of task').first().waitFor(SEEN);
        registerHome(readFileSync(join(server.farHome, 'id'), 'utf8').trim());
        await user.clearToasts();
        const { sessions } = JSON.parse(await farRun('session', 'list', '--json')) as {
          sessions: { id: string }[];
        };
        const session = sessions[0]?.id ?? '';
        const farHome = readFileSync(join(server.farHome, 'id'), 'utf8').trim();
        const cat = (path: string): Promise<string> => farRun('workspace', 'cat', session, path);

        // Its own window: nothing is asked again, because the connector keeps the login.
        await user.open({ folder: `holdfast://${session}.${farHome}/` });
        await user.expandFolder('workspace');
        await user.runCommand('Agent: Open Session Page');
        const box = framed.getByRole('textbox', { name: 'Prompt for the agent' });
        await box.fill('write by-the-agent.txt done\npermission make\nsay finished');
        await box.press('Enter');
        await framed.getByText('The agent asks for permission').waitFor(SEEN);
        await user.screenshot('remote-permission-dark');
        await framed.locator('.permission .actions button.primary').click();
        await framed.locator('.message', { hasText: 'finished' }).waitFor(SEEN);
        await user.explorerRow('by-the-agent.txt').first().waitFor();

        await user.explorerRow('notes.txt').first().dblclick();
        await user.typeAtTop('to do', 'typed here, ');
        await user.save('notes.txt');
        expect(await cat('notes.txt')).toBe('typed here, to do\n');

        await user.runCommand('Agent: Open Terminal');
        await user.terminalRow('$').first().waitFor(SEEN);
        await user.typeInTerminal('echo in $PWD $((6 * 7)); echo made > from-terminal');
        await user.terminalRow('in /workspace 42').first().waitFor();
        await user.explorerRow('from-terminal').first().waitFor();
        await user.screenshot('remote-terminal-dark');

        // A secret is typed here and kept there; the credential of the session has it from then on.
        await user.typeInTerminal(ASK_API);
        await user.terminalRow('status 401.').first().waitFor(SEEN);
        await user.runCommand('Agent: Set Secret');
        await user.quickInput('Set Secret on build-box').waitFor();
        await user.enterText('BOX_KEY');
        await user.pickItem('All Profiles');
        await user.enterText('kept on the box');
        await user.waitForStatus('BOX_KEY is set');
        expect(await farRun('secret', 'list')).toContain('BOX_KEY');
        expect(await home.runOk(['secret', 'list'])).not.toContain('BOX_KEY');
        await user.typeInTerminal(ASK_API);
        await user
          .terminalRow(/status 50\d\./)
          .first()
          .waitFor(SEEN);

        // Text is found in its files.
        await user.runCommand('Agent: Search in Workspace');
        await user.enterText('typed here');
        await user.sessionRow('typed here, to do').first().click();
        await user.page.locator('.statusbar-item', { hasText: 'Ln 1, Col' }).first().waitFor();

        // The network goes in the middle of a save. Nothing is shown as saved, nobody is interrupted by a question, and
        // the text is there when the person connects again.
        await user.tab('notes.txt').first().click();
        await user.typeAtTop('typed here', 'kept, ');
        cuts.ask([1]);
        await page.keyboard.press('Control+S');
        await expect.poll(() => cuts.made, SEEN).toBe(1);
        await user.tab('notes.txt', 'dirty').first().waitFor();
        await user.terminalRow('There is no connection to build-box').first().waitFor();
        expect(await user.terminalRow('passphrase').count()).toBe(0);
        expect(await page.locator('.quick-input-widget input[type=password]').count()).toBe(0);
        await user.openSessionsView();
        await user
          .sessionRow(/build-box.*away since/)
          .first()
          .waitFor(SEEN);
        await user.screenshot('remote-away-dark');
        await user.clearToasts();
        await connect(user, { codes: CODES.slice(1) });
        await user.clearToasts();
        await user.tab('notes.txt', 'dirty').first().click();
        await user.save('notes.txt');
        expect(await cat('notes.txt')).toBe('kept, typed here, to do\n');
        await user.typeInTerminal('echo back $((6 * 8))');
        await user.terminalRow('back 48').first().waitFor();

        // What an agent there asks is in the inbox here, and is answered from it.
        await farRun('prompt', session, 'permission make\nsay answered', '--no-wait');
        await page.locator('.statusbar-item', { hasText: '1 waiting' }).first().waitFor(SEEN);
        await user.runCommand('Agent: Answer Permission');
        await user.pickItem('Allow');
        await page
          .locator('.statusbar-item', { hasText: '1 waiting' })
          .waitFor({ state: 'detached', ...SEEN });

        // Back at the repository of this machine: review, and take the work over. The login is still there.
        await user.open({ folder: user.server.remote(project) });
        await connect(user, false);
        await user.clearToasts();
        await user.runCommand('Agent: Review Changes');
        await user.pickItem('task');
        await user.tab('by-the-agent.txt').first().waitFor(SEEN);
        await user.runCommand('Agent: Accept All Changes');
        await user.pressDialogButton('Accept 3 changes', 'Accept All');
        await page.locator('.statusbar-item', { hasText: 'all decided' }).first().waitFor(SEEN);
        await user.runCommand('Agent: Hand Off');
        await user.pickItem('task');
        await user.pickItem('New Branch');
        await user.pickItem('open in this window');
        await user.enterText('Work of the other machine');
        await user.dialog('Hand over 3 files').waitFor(SEEN);
        await user.pressDialogButton('Hand over 3 files', 'Hand Off');
        await user.toast('3 files handed off').first().waitFor(SEEN);
        const branch = git('branch', '--list', 'holdfast/*', '--format=%(refname:short)');
        expect(git('diff', '--name-status', head, branch)).toBe(
          'A\tby-the-agent.txt\nA\tfrom-terminal\nM\tnotes.txt',
        );
        expect(git('show', `${branch}:notes.txt`)).toBe('kept, typed here, to do');
        expect(git('status', '--porcelain')).toBe('');

        // Leaves, and comes back to what is there.
        await user.runCommand('Agent: Disconnect from Host');
        await user.openSessionsView();
        await user
          .sessionRow(/build-box.*not connected/)
          .first()
          .waitFor(SEEN);
        await connect(user, false);
        await user.sessionRow('task').first().waitFor(SEEN);
        await user.screenshot('remote-back-dark');
      },
    );
  },
);
