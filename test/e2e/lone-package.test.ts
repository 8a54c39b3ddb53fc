import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { expect, test } from 'vitest';
import { PrivateEngine, privateEngineObstacle } from '../engine-harness/private-engine.ts';
import { TestHome } from '../setup/test-home.ts';
import { SOAK } from '../setup/run-length.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { journey } from './harness/user.ts';
import type { User } from './harness/user.ts';

const obstacle = privateEngineObstacle();
/** Packages of a small Debian are fetched and unpacked, on a machine that may be busy. */
const BUILD_MS = 15 * 60_000;
const GONE = { timeout: 30_000 };

interface Machine {
  readonly engine: PrivateEngine;
  readonly home: TestHome;
  readonly env: Readonly<Record<string, string>>;
  readonly folder: string;
}

/** An engine without images and an empty home: whoever sits down there has the package and nothing else of ours. */
async function onNewMachine(
  more: Readonly<Record<string, string>>,
  story: (machine: Machine) => Promise<void>,
) {
  const engine = await PrivateEngine.start();
  const env = { DOCKER_HOST: `unix://${engine.socketPath}`, ...more };
  const home = await TestHome.create(env);
  try {
    const folder = await writeProject(home.projects, shellProject('mine'));
    await story({ engine, home, env, folder });
  } finally {
    await home.dispose();
    await engine.close();
  }
}

async function asksForSession(person: User): Promise<void> {
  await person.runCommand('Agent: New Session');
  await person.pickItem(/project-/);
}

async function trusts(person: User): Promise<void> {
  await person.runCommand('Workspaces: Manage Workspace Trust');
  await person.page
    .locator('.workspace-trust-editor .monaco-button', { hasText: /^Trust$/ })
    .first()
    .click();
}

/** A registry that is asked for a package and never answers; while it is closed nobody is there. */
class SilentRegistry {
  readonly #server = createServer((socket) => {
    this.#sockets.add(socket.on('error', () => undefined));
    socket.once('data', () => this.#asked.resolve(true));
  });
  readonly #sockets = new Set<Socket>();
  #asked = Promise.withResolvers<true>();
  #port = 0;

  async open(): Promise<void> {
    this.#asked = Promise.withResolvers();
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
    await closed;
  }

  get address(): string {
    return `http://127.0.0.1:${this.#port}/`;
  }

  /** Since it was opened. */
  get asked(): Promise<true> {
    return this.#asked.promise;
  }
}

async function beingBuilt(server: { readonly folder: string }): Promise<string[]> {
  return (await readdir(server.folder)).filter((name) => name.startsWith('holdfast-image-'));
}

/** The program that builds images from an extension below this folder. */
function buildersIn(folder: string): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      } catch {
        return ''; // it has ended
      }
    })
    .filter((line) => line.includes(folder) && line.includes('setup/images.cjs'));
}

test.skipIf(obstacle !== null)(
  `with the package alone a person is told what is missing; building it can be cancelled, says what it lacks, and ends with the editor (${obstacle ?? 'private'})`,
  async () => {
    const registry = new SilentRegistry();
    await registry.open();
    const more = { npm_config_registry: registry.address, npm_config_fetch_retries: '0' };
    try {
      await onNewMachine(more, async ({ home, env, folder }) => {
        let place = '';
        await journey('lone-package', { home: home.path, open: { folder }, env }, async (person) => {
          place = person.server.folder;
          const build = async (): Promise<void> => {
            await asksForSession(person);
            await person.pressToastButton(/holdfast\/agent:[0-9a-f]+ is not on the engine/, 'Build Images');
          };
          await trusts(person);

          await build();
          await registry.asked;
          expect(await beingBuilt(person.server)).toHaveLength(1);
          await person.pressToastButton("Holdfast's images", 'Cancel');
          await expect.poll(() => beingBuilt(person.server), GONE).toEqual([]);
          await person.toast("Holdfast's images").first().waitFor({ state: 'detached' });
          await expect.poll(() => buildersIn(place), GONE).toEqual([]);

          await registry.close();
          await person.clearToasts();
          await build();
          await person
            .toast(
              /could not be built: node-linux-\w+@[\d.]+ is missing: npm pack failed.*ECONNREFUSED.*npm can reach its registry/s,
            )
            .first()
            .waitFor({ timeout: 60_000 });
          await person.screenshot('images-missing-dark');

          await registry.open();
          await person.clearToasts();
          await build();
          await registry.asked;
          expect(buildersIn(place)).toHaveLength(1);
        });
        await expect.poll(() => buildersIn(place), GONE).toEqual([]);
      });
    } finally {
      await registry.close();
    }
  },
);

test.skipIf(obstacle !== null || !SOAK)(
  'with the package alone a person builds the images, begins a session and runs a turn',
  { timeout: BUILD_MS + 180_000 },
  async () => {
    await onNewMachine({}, async ({ engine, home, env, folder }) => {
      await journey('lone-package-builds', { home: home.path, open: { folder }, env }, async (person) => {
        await trusts(person);
        await asksForSession(person);
        await person.pressToastButton(/is not on the engine/, 'Build Images');
        await person
          .toast(/building (sidecar|agent) from Debian packages/)
          .first()
          .waitFor({ timeout: BUILD_MS });
        await person.screenshot('building-images-dark');
        await person.toast('images are ready').first().waitFor({ timeout: BUILD_MS });
        const tags = (await engine.docker.listImages()).flatMap(({ RepoTags }) => RepoTags ?? []);
        expect(tags.sort()).toEqual([__AGENT_IMAGE__, __SIDECAR_IMAGE__].sort());

        await person.pressToastButton('images are ready', 'New Session');
        await person.pickItem(/project-/);
        await person.pressToastButton('New session of mine', 'Run Turn');
        await person.enterText('echo it works');
        await person.toast('The turn succeeded').first().waitFor({ timeout: 60_000 });
      });
    });
  },
);
