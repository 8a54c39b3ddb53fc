import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { checkProfile } from '../../../supervisor/profiles/read.ts';
import { PRESETS } from '../../../protocol/presets/index.ts';
import { findPackages } from '../../../project/packages.ts';
import { withProjectPackages } from '../../../supervisor/profiles/project-packages.ts';
import { planSetup } from '../../../supervisor/setup/plan.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-packages-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));
const write = (name: string, text: string) => writeFile(join(folder, name), text);

test('packages are those that the files of a project name, and the rest is said', async () => {
  await write(
    'package.json',
    JSON.stringify({
      scripts: { postinstall: 'exit 1' },
      dependencies: { preact: '^10.2.0', '@scope/tool': '*', fork: 'git+ssh://git@example.org/x' },
      devDependencies: { typescript: '5.9' },
    }),
  );
  await write(
    'requirements.txt',
    '# tools\nruff==0.14 # pinned\nhttpx [http2] >= 0.27, < 1 ; python_version > "3.9"\n-r other.txt\n./local\nx @ https://example.org/x.whl\nhashed==1 \\\n  --hash=sha256:00\n',
  );
  await write('pyproject.toml', '[project]\nname = "x"\ndependencies = ["rich>=13", "ruff==0.14"]\n');
  const { packages, notes } = await findPackages(folder);
  expect(packages).toEqual({
    npm: ['preact@^10.2.0', '@scope/tool', 'typescript@5.9'],
    pip: ['ruff==0.14', 'httpx[http2]>=0.27,<1', 'hashed==1', 'rich>=13'],
  });
  expect(notes).toEqual([
    'npm, from package.json: preact@^10.2.0 @scope/tool typescript@5.9',
    'left out of package.json, because it is no name with a version: fork@git+ssh://git@example.org/x',
    'pip, from requirements.txt: ruff==0.14 httpx[http2]>=0.27,<1 hashed==1',
    'left out of requirements.txt, because it is no name with a version: -r other.txt',
    'left out of requirements.txt, because it is no name with a version: ./local',
    'left out of requirements.txt, because it is no name with a version: x @ https://example.org/x.whl',
    'pip, from pyproject.toml: rich>=13 ruff==0.14',
  ]);
});

test('the packages of a preset come first, and the project cannot name another version of them', async () => {
  const profile = checkProfile(
    'name: coder\nagent: { preset: claude }\npersistence: persistent\nsetup: { packages: auto }\n',
  );
  await write('package.json', '{"dependencies": {"@anthropic-ai/claude-code": "0.0.1", "preact": "10.2.0"}}');
  const found = await withProjectPackages(profile, folder);
  const own = PRESETS.claude.packages;
  expect(found.profile.setup?.packages).toEqual({ npm: [...own, 'preact@10.2.0'] });
  expect(found.notes).toEqual([
    `npm, for the agent: ${own.join(' ')}`,
    'npm, from package.json: preact@10.2.0',
  ]);
});

test('a project that names none has no setup, and one with a broken or foreign file is refused', async () => {
  const profile = checkProfile(
    'name: coder\nagent: { protocol: command, command: [cat] }\nsetup: { packages: auto }\n',
  );
  const found = await withProjectPackages(profile, folder);
  expect(planSetup(found.profile, 'sha256:1')).toBeNull();
  // A link out of the project is nothing that the project names.
  await symlink('/etc/passwd', join(folder, 'requirements.txt'));
  expect((await findPackages(folder)).packages).toEqual({});
  await write('package.json', '{"dependencies": {"preact": "10.2.0"}}');
  const some = await withProjectPackages(profile, folder);
  expect(planSetup(some.profile, 'sha256:1')?.steps.map(({ shown }) => shown)).toEqual([
    'npm install preact@10.2.0',
  ]);
  await write('package.json', '{ not json');
  await expect(findPackages(folder)).rejects.toMatchObject({ code: 'profile_invalid' });
  await write('package.json', ' '.repeat(2 ** 20 + 1));
  await expect(findPackages(folder)).rejects.toMatchObject({ code: 'profile_invalid' });
});

test('files with very many entries are judged at once, and few are named', async () => {
  const lines = Array.from({ length: 100_000 }, (_, at) => `./${at}`);
  await write('requirements.txt', ['ruff==0.14', ...lines].join('\n'));
  // Of the processor: other tests may have it meanwhile.
  const began = process.cpuUsage();
  const { packages, notes } = await findPackages(folder);
  expect(process.cpuUsage(began).user).toBeLessThan(1_000_000);
  expect(packages).toEqual({ pip: ['ruff==0.14'] });
  expect(notes).toHaveLength(22);
  expect(notes.at(-1)).toBe('left out of requirements.txt, for the same reason: 99980 more');
  await write('requirements.txt', lines.map((line) => `p${line.slice(2)}`).join('\n'));
  await expect(findPackages(folder)).rejects.toMatchObject({ code: 'profile_invalid' });
});
