import { join } from 'node:path';
import type { Locator } from 'playwright-core';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { commitProject } from '../setup/git-project.ts';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';
import { type User, journey } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const ReviewedSchema = z.object({
  review: z.object({
    id: z.string(),
    base: z.object({ spec: z.string() }),
    counts: z.object({ files: z.number() }),
  }),
});
const ChecksSchema = z.object({ checks: z.array(z.unknown()) });
const STORY = Array.from({ length: 40 }, (_, at) => `line ${at + 1}\n`).join('');
/** Eight texts that the agent changes as a whole. */
const MORE = Array.from({ length: 8 }, (_, at) => `z${at + 1}.txt`);
/** The agent changes twelve files: two places of a text, eight texts, a new program, a new text, and it deletes a file. */
const EDITS = [
  'cd /workspace',
  "sed -i -e 's/^line 3$/line three/' -e 's/^line 30$/line thirty/' story.txt",
  `for file in ${MORE.join(' ')}; do echo better > $file; done`,
  "printf '#!/bin/sh\\necho hi\\n' > run.sh && chmod +x run.sh",
  'echo new > new.txt',
  'rm old.txt',
].join(' && ');
/** Runs commands; what it is told beside them, it answers with the file that the comment is about. */
const AGENT =
  'in=$(cat); case "$in" in "cd /workspace"*) eval "$in";; *) echo "new, and why" > /workspace/new.txt;; esac';
/** Passes on exactly what is accepted at the end: not on the workspace before the agent's answer, and not with what was rejected. */
const CHECK =
  'grep -qx "new, and why" new.txt && test ! -e run.sh && test ! -e old.txt && grep -qx "line 3" story.txt';

function changeRow(person: User, name: string): Locator {
  return person.page.locator('.scm-view .monaco-list-row', { hasText: name });
}

function status(person: User, text: string): Locator {
  return person.page.locator('.statusbar-item', { hasText: text });
}

/** Presses a key in the right side of the diff editor, once that has the focus. */
async function press(person: User, key: string, done: Locator): Promise<void> {
  await person.page.locator('.monaco-diff-editor .editor.modified .monaco-editor.focused').waitFor();
  await person.page.keyboard.press(key);
  await done.first().waitFor();
}

/** Comments on the line of the cursor, as the text that it is. */
async function commentOnLine(person: User, text: string): Promise<void> {
  await person.page.locator('.monaco-diff-editor .editor.modified .monaco-editor.focused').waitFor();
  await person.runCommand('Comments: Add Comment on Current Selection');
  const widget = person.page.locator('.review-widget');
  await widget.locator('.monaco-editor.focused').first().waitFor();
  await person.page.keyboard.type(text);
  await widget.locator('.monaco-button', { hasText: 'Comment' }).first().click();
  await widget.locator('.comment-body', { hasText: text }).first().waitFor();
}

test('a person reviews by keyboard what an agent changed, hands it to a repository and takes it back', async () => {
  const home = await TestHome.create();
  try {
    const project = await writeProject(home.projects, {
      'holdfast.yaml': JSON.stringify({
        ...{ name: 'writer', persistence: 'persistent', checks: { told: CHECK } },
        agent: { protocol: 'command', command: ['sh', '-c', AGENT] },
      }),
      'story.txt': STORY,
      'old.txt': 'old\n',
      ...Object.fromEntries(MORE.map((name) => [name, 'plain\n'])),
    });
    const git = commitProject(project);
    const head = git('rev-parse', 'HEAD');
    await home.runOk(['deploy', project]);
    const created = await home.runJson(['session', 'create', 'writer', '--name', 'story']);
    const { id } = CreatedSchema.parse(created).session;
    await home.runOk(['snapshot', 'create', id]);
    await home.runOk(['prompt', id, EDITS]);
    await journey(
      'review',
      {
        home: home.path,
        open: (server) => ({ folder: server.remote(project) }),
        settings: { 'security.workspace.trust.enabled': false },
      },
      async (person) => {
        await person.runCommand('Agent: Review Changes Since…');
        await person.pickItem('story');
        await person.pickItem('The Commit That Is Checked Out');
        await person.pickItem('open in this window');
        // What may run on the machine comes first.
        await person.tab('run.sh').first().waitFor();
        for (const name of ['run.sh', 'new.txt', 'old.txt', 'story.txt'])
          await changeRow(person, name).first().waitFor();
        expect(ReviewedSchema.parse(await home.runJson(['review', id])).review).toMatchObject({
          base: { spec: `head:${head}` },
          counts: { files: 12 },
        });
        await person.screenshot('review-dark');
        await press(person, 'Alt+Shift+KeyR', person.tab('new.txt'));
        await press(person, 'Alt+a', person.tab('old.txt'));
        await press(person, 'Alt+n', person.tab('story.txt'));
        await press(person, 'Alt+r', status(person, 'Ln 30, Col 1'));
        await press(person, 'Alt+a', person.tab('z1.txt'));
        // After the last one it goes on with what was left out.
        for (const next of [...MORE.slice(1), 'old.txt'])
          await press(person, 'Alt+Shift+KeyA', person.tab(next));
        await press(person, 'Alt+Shift+KeyA', status(person, 'story: all decided'));
        await person.toast('every change is decided').first().waitFor();
        await person.screenshot('reviewed-dark');
        await press(person, 'Alt+u', status(person, 'story: 1 to review'));
        await press(person, 'Alt+Shift+KeyA', status(person, 'story: all decided'));
        const text = await home.runOk(['exec', id, '--', 'sed', '-n', '3p;30p', '/workspace/story.txt']);
        expect(text).toBe('line 3\nline thirty\n');

        await changeRow(person, 'new.txt').first().click();
        await person.tab('new.txt').first().waitFor();
        await commentOnLine(person, 'say **what** is new');
        await person.screenshot('review-comment-dark');
        expect(await home.runJson(['review', 'comment', id])).toMatchObject({
          comments: [
            {
              ...{ path: '/workspace/new.txt', side: 'target', lines: { start: 0, end: 1 }, sent: null },
              ...{ quote: 'new\n', text: 'say **what** is new' },
            },
          ],
        });

        // The agent answers; what changed since it was accepted is to review again.
        await person.runCommand('Agent: Send Comments to Agent');
        await person.toast('1 comment sent to the agent').first().waitFor();
        await expect
          .poll(() => home.runOk(['exec', id, '--', 'cat', '/workspace/new.txt']), { timeout: 60_000 })
          .toBe('new, and why\n');
        await status(person, 'story: 0 to review, outdated').first().click();
        await status(person, 'story: 1 to review').first().waitFor();
        expect(await home.runJson(['review', 'comment', id])).toMatchObject({
          comments: [{ addressed: true }],
        });
        await changeRow(person, 'new.txt').first().click();
        await person.tab('new.txt').first().waitFor();
        await press(person, 'Alt+Shift+KeyA', status(person, 'story: all decided'));

        await person.runCommand('Agent: Run Checks on What You Accepted');
        await person.pickItem('story');
        await person.toast('all checks passed on what you accepted').first().waitFor();
        // What passed is not judged again, unless the person asks for it.
        await person.runCommand('Agent: Run Checks on What You Accepted');
        await person.pickItem('story');
        const KEPT = '1 passed before on the same files and did not run again';
        await person.toast(KEPT).first().waitFor();
        await person.pressToastButton(KEPT, 'Run Again');
        const ended = async (): Promise<number> =>
          (await home.runOk(['session', 'events', id, '--type', 'check.ended', '--json'])).trim().split('\n')
            .length;
        await expect.poll(ended, { timeout: 60_000 }).toBe(2);
        const { checks } = ChecksSchema.parse(await home.runJson(['check', id, '--accepted', '--list']));
        const reviewed = ReviewedSchema.parse(await home.runJson(['review', id])).review;
        expect(checks).toMatchObject([{ name: 'told', last: { exitCode: 0, review: { id: reviewed.id } } }]);

        // Beside the git repository of the folder it has its own title, whose buttons are about its session.
        const control = person.page.locator('.scm-viewlet .scm-provider', { hasText: 'Review: story' });
        await control.first().hover();
        await control.first().locator('[aria-label^="Hand Off"]').click();
        await person.pickItem('New Worktree');
        await person.pickItem('open in this window');
        await person.enterText('Tell the story better');
        await person.dialog('Hand over 11 files').waitFor();
        await person.screenshot('handoff-dark');
        await person.pressDialogButton('Hand over 11 files', 'Hand Off');
        await person.toast('11 files handed off').first().waitFor();
        await person.screenshot('handed-off-dark');

        const commit = git('rev-parse', 'holdfast/story');
        expect(git('rev-parse', `${commit}^`)).toBe(head);
        expect(git('log', '-1', '--format=%s', commit)).toBe('Tell the story better');
        expect(git('diff', '--name-status', head, commit)).toBe(
          ['A\tnew.txt', 'D\told.txt', 'M\tstory.txt', ...MORE.map((name) => `M\t${name}`)].join('\n'),
        );
        expect(git('show', `${commit}:new.txt`)).toBe('new, and why');
        expect(git('diff', '--unified=0', head, commit, '--', 'story.txt')).toContain(
          '-line 30\n+line thirty',
        );
        expect(git('diff', '--unified=0', head, commit, '--', 'story.txt')).not.toContain('line three');
        git('fsck', '--strict');
        expect(git('status', '--porcelain')).toBe('');
        const manifest = git('log', '-1', '--format=%(trailers:key=Holdfast-Manifest,valueonly)', commit);
        const file = join(home.projects, 'story.manifest.json');
        await home.runOk(['manifest', 'show', id, '--id', manifest, '--output', file]);
        expect(await home.runJson(['manifest', 'verify', file])).toMatchObject({ valid: true });

        await person.pressToastButton('11 files handed off', 'Undo');
        await person.toast('The handoff was undone').first().waitFor();
        expect(git('branch', '--list', 'holdfast/*')).toBe('');
        expect(git('worktree', 'list').split('\n')).toHaveLength(1);

        await person.runCommand('Agent: Show Manifest');
        await person.pickItem('story');
        await person.tab('story manifest.txt').first().waitFor();
        await person.page.locator('.view-line', { hasText: 'Valid: signed with the key' }).first().waitFor();
        await person.screenshot('manifest-dark');
      },
    );
  } finally {
    await home.dispose();
  }
});
