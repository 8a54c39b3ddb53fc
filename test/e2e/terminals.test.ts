import type { Locator } from 'playwright-core';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';

const KEPT_MS = 3_000;
/** A link is found sooner. */
const FOUND_MS = 2_000;
const FOUND_TRIES = 10;
const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });

test('a terminal is as before after the window was reloaded and the supervisor killed; its paths open the session’s files; it follows the window', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const { session } = CreatedSchema.parse(
      await home.runJson(['session', 'create', 'shell', '--name', 'with-terminal']),
    );
    const inside = (script: string): Promise<string> =>
      home.runOk(['exec', '--no-stdin', session.id, '--', 'sh', '-c', script]);
    await inside('cd /workspace && mkdir src && printf "one\\ntwo\\nthree\\n" > src/linked.ts');
    const open = { folder: `holdfast://${session.id}/` };
    // Letters as elements of the page instead of pixels, so that they can be read.
    const settings = { 'terminal.integrated.gpuAcceleration': 'off' };
    await journey('terminal', { home: home.path, open, settings }, async (person) => {
      const { page } = person;
      const row = (text: string | RegExp) => person.terminalRow(text);
      const type = (text: string) => person.typeInTerminal(text);

      // Over what lies above the letters: the pointer, not the element, is what a terminal looks at.
      const pointAt = async (line: Locator, x: number): Promise<void> => {
        await line.first().waitFor();
        const box = await line.first().boundingBox();
        const [left, middle] = [(box?.x ?? 0) + x, (box?.y ?? 0) + (box?.height ?? 0) / 2];
        await page.mouse.move(left + 40, middle);
        await page.mouse.move(left, middle, { steps: 5 });
      };
      const click = async (): Promise<void> => {
        await page.mouse.down();
        await page.mouse.up();
        await page.keyboard.up('Control');
      };
      /** Clicks a link once VS Code has found it, which it looks for when the pointer rests. */
      const follow = async (line: Locator, x: number): Promise<void> => {
        await page.keyboard.down('Control');
        const hand = page.locator('.terminal .xterm-cursor-pointer').first();
        for (let tries = 1; ; tries += 1) {
          await pointAt(line, x);
          try {
            await hand.waitFor({ timeout: FOUND_MS });
            break;
          } catch (error) {
            if (tries === FOUND_TRIES) throw error;
          }
        }
        await click();
      };

      await person.runCommand('Agent: Open Terminal');
      await row('$').first().waitFor({ timeout: 60_000 });
      await type('kept=yes; echo in $PWD žluť 日本');
      await row('in /workspace žluť 日本').first().waitFor();

      // VS Code writes down a moment later what a window shows.
      await page.waitForTimeout(KEPT_MS);
      await person.reload();
      await person.runCommand('Terminal: Focus on Terminal View');
      await row('in /workspace žluť 日本').first().waitFor({ timeout: 60_000 });
      await type('echo still $kept');
      await row('still yes').first().waitFor();

      process.kill(await home.supervisorPid(), 'SIGKILL');
      await expect
        .poll(
          async () => {
            await type('echo again $kept');
            return row('again yes').count();
          },
          { timeout: 30_000, interval: 1000 },
        )
        .toBeGreaterThan(0);

      let asked = 0;
      const columns = async (): Promise<number> => {
        asked += 1;
        await type(`stty size > /workspace/asked && mv /workspace/asked /workspace/size-${asked}`);
        await expect
          .poll(() => inside(`cat /workspace/size-${asked} || true`), { timeout: 30_000, interval: 250 })
          .toMatch(/^\d+ \d+/);
        return Number((await inside(`cat /workspace/size-${asked}`)).split(' ')[1]);
      };
      const before = await columns();
      await page.setViewportSize({ width: 900, height: 700 });
      await expect.poll(columns, { timeout: 60_000 }).toBeLessThan(before);

      await type(
        String.raw`clear; printf '\033]8;;command:workbench.action.files.newUntitledFile\007a link\033]8;;\007\n'; cd src; echo linked.ts:2:2: here`,
      );
      await row(/^a link/)
        .first()
        .waitFor();
      await follow(row(/^linked\.ts:2:2: here/), 30);
      await person.tab('linked.ts').waitFor();
      await page.locator('.statusbar-item', { hasText: 'Ln 2, Col 2' }).first().waitFor();
      await person.screenshot('terminal-dark');

      await type('clear; cp linked.ts "with a space.ts"; echo "with a space.ts:3:1: there"');
      await follow(row(/^with a space\.ts:3:1: there/), 40);
      await person.tab('with a space.ts').waitFor();
      await page.locator('.statusbar-item', { hasText: 'Ln 3, Col 1' }).first().waitFor();

      await type(
        String.raw`clear; printf '\033]8;;command:workbench.action.files.newUntitledFile\007a link\033]8;;\007\n'`,
      );
      await row(/^a link/)
        .first()
        .waitFor();
      await page.keyboard.down('Control');
      await pointAt(row(/^a link/), 15);
      await page.waitForTimeout(FOUND_MS);
      await click();
      await page.waitForTimeout(700);
      expect(await page.locator('.tab', { hasText: 'Untitled' }).count()).toBe(0);
    });
  } finally {
    await home.dispose();
  }
});
