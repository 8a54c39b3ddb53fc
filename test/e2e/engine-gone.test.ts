import { expect, test } from 'vitest';
import { z } from 'zod';
import { bareImage } from '../engine-harness/engine-fixture.ts';
import { PrivateEngine, engineAt, privateEngineObstacle } from '../engine-harness/private-engine.ts';
import { TestHome } from '../setup/test-home.ts';
import { bareProject } from '../faults/harness/bare-profile.ts';
import { writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const obstacle = privateEngineObstacle();

test.skipIf(obstacle !== null)(
  `an engine that dies takes no keystroke with it (${obstacle ?? 'private'})`,
  async () => {
    const image = await bareImage(engineAt('/var/run/docker.sock'));
    const engine = await PrivateEngine.start({ images: [__SIDECAR_IMAGE__, image.reference] });
    const env = { DOCKER_HOST: `unix://${engine.socketPath}` };
    const home = await TestHome.create(env);
    try {
      const files = {
        ...bareProject('notes', image.reference, 'workspace: { seed: notes }\n'),
        'notes/notes.md': 'on the disk\n',
      };
      await home.runOk(['deploy', await writeProject(home.projects, files)]);
      const created = await home.runJson(['session', 'create', 'notes']);
      const { id } = CreatedSchema.parse(created).session;
      await journey(
        'engine-gone',
        { home: home.path, open: { folder: `holdfast://${id}/` }, env },
        async (person) => {
          await person.expandFolder('workspace');
          await person.explorerRow('notes.md').first().dblclick();
          await person.typeAtTop('on the disk', 'before, ');
          await person.tab('notes.md', 'dirty').waitFor();

          await engine.killDaemon();
          await person.waitForStatus('Docker is not running');
          await person.page.keyboard.type('while it was down, ');
          await person.editorLine('before, while it was down, on the disk').first().waitFor();
          await person.screenshot('engine-gone-dark');

          await engine.startDaemon();
          await person.page
            .locator('.statusbar-item', { hasText: 'Docker is not running' })
            .waitFor({ state: 'detached', timeout: 60_000 });
          await person.page.keyboard.type('after, ');
          await person.save('notes.md');
          expect(await person.page.locator('.notification-toast').count()).toBe(0);
          expect(await home.runOk(['workspace', 'cat', id, 'notes.md'])).toBe(
            'before, while it was down, after, on the disk\n',
          );
        },
      );
    } finally {
      await home.dispose();
      await engine.close();
      await image.remove();
    }
  },
);
