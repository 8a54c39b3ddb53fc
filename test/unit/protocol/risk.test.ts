import { expect, test } from 'vitest';
import { foldName } from '../../../protocol/folded-name.ts';
import { type Risk, type RiskyEntry, riskRank, risksOf } from '../../../protocol/risk.ts';

function risks(path: string, over: Partial<RiskyEntry> = {}): Risk[] {
  const names = path.split('/').map((name) => Buffer.from(name));
  return risksOf({ names, type: 'file', oldMode: null, newMode: 0o644, newBytes: 10, ...over });
}
const link = (path: string, target: string): Risk[] =>
  risks(path, { type: 'symlink', newMode: 0o777, newBytes: null, link: Buffer.from(target) });

test.each([
  '.vscode/tasks.json',
  'deep/in/a/package/.vscode/settings.json',
  '.VSCode/tasks.json',
  '.gıt/../x'.replace('ı', 'i'),
  '.g\u200cit/config',
  '.git./hooks/x',
  'git~1/config',
  '.git::$INDEX_ALLOCATION/config',
  '.husky',
  '.gemini/settings.json',
  '.codex/config.toml',
  'opencode.json',
  '.holdfastignore',
  '.yarn/releases/yarn.cjs',
  '.gitattributes',
  'sub/.gitmodules',
  '.devcontainer/devcontainer.json',
  'devcontainer.json',
  'package.json',
  'fixtures/repo/HEAD',
  'fixtures/repo.git/config',
  'hooks/pre-commit',
  'my.code-workspace',
  'lefthook-local.yml',
  '.lefthook-local.yml',
  'lefthook.toml',
  '.lefthook/pre-commit/check.sh',
  'packages/a/.lintstagedrc.mjs',
  'lint-staged.config.js',
  '.commitlintrc.json',
  'commitlint.config.cjs',
  '.huskyrc.js',
  'prek.toml',
  '.pre-commit-config.yml',
  '.pnp.cjs',
  'pnpmfile.js',
  'package.yaml',
  'bunfig.toml',
  'mise.local.toml',
  '.mise/config.toml',
  'eslint.config.js',
  '.prettierrc.cjs',
  '.qwen/settings.json',
  'QWEN.md',
  'AGENTS.override.md',
  'composer.json',
  'Gemfile',
  'gems.rb',
  'a/x.gemspec',
  'Rakefile',
  'pyproject.toml',
  'setup.cfg',
  'noxfile.py',
  'tox.ini',
  'a/Cargo.toml',
  'build.gradle.kts',
  'gradlew.bat',
  'pom.xml',
  'CMakeLists.txt',
  'cmake/find.cmake',
  'CMakePresets.json',
  'GNUmakefile',
  'rules.mk',
  'justfile',
  'Taskfile.yml',
  'App.csproj',
  'Directory.Build.props',
  'x.targets',
  'App.sln',
  'mix.exs',
  'build.sbt',
  'deps.edn',
  'Package.swift',
  'x.podspec',
  'meson.build',
  'BUILD.bazel',
  'WORKSPACE',
  'defs.bzl',
  'flake.nix',
  'Dockerfile.dev',
  'docker-compose.override.yml',
  'Vagrantfile',
  'deno.json',
  'vite.config.mts',
  'jest.config.js',
  'webpack.config.cjs',
  'gulpfile.mjs',
  '.babelrc.js',
  'Makefile.am',
  'configure.ac',
  'stack.yaml',
  'Setup.hs',
  'x.cabal',
  'dune-project',
  'x.opam',
  'build.zig',
  'x.vcxproj',
  'x.xcodeproj/project.pbxproj',
  'Makefile.PL',
  'x.nimble',
  'x.rockspec',
  'requirements.txt',
  'go.mod',
])('%s can run on the machine of a person', (path) => {
  expect(risks(path)[0]).toBe('executes');
});

test('executables, and links called like an obeyed folder, can run as well', () => {
  expect(risks('tool', { newMode: 0o755 })).toEqual(['executes']);
  expect(risks('tool', { oldMode: 0o644, newMode: 0o755 })).toEqual(['executes', 'mode']);
  expect(link('.vscode', 'src')).toEqual(['executes']);
  expect(link('a/.husky', '../x')).toEqual(['executes']);
});

test.each([
  ['a/link', '/etc/passwd'],
  ['a/link', '../../x'],
  ['link', '..'],
  ['a/b/link', 'x/../../../../etc'],
  ['a/link', 'C:\\Windows'],
  ['a/link', '..\\..\\x'],
  ['a/link', 'other/../..'],
])('%s → %s may lead out', (path, target) => {
  expect(link(path, target)).toContain('outside');
});

test.each([
  ['a/link', '../x'],
  ['link', 'a/b'],
  ['a/b/link', '../../x/./y'],
])('%s → %s stays inside', (path, target) => {
  expect(link(path, target)).toEqual([]);
});

test.each([
  ['app.log', '.git/config'],
  ['dist', '.git/hooks'],
  ['x/y', '../.GIT/config'],
  ['x/y', '..\\git~1'],
  ['notes', './.vscode'],
  ['out.json', 'package.json'],
])('%s → %s writes what programs of a person obey', (path, target) => {
  expect(link(path, target)).toContain('executes');
});

test('files that are only called alike run nothing', () => {
  const alike = ['src/lefthooks.ts', 'docs/commit.md', 'mise-en-place.md', '.eslintrc.json'];
  const built = [
    'src/makefile.ts',
    'docs/cargo.md',
    'composer.ts',
    'src/build.ts',
    'configure.ts',
    'a.config.ts',
  ];
  for (const path of [...alike, ...built]) expect(risks(path), path).toEqual([]);
});

test('the other flags, the most dangerous first', () => {
  expect(risks('.github/workflows/test.yml')).toEqual(['ci']);
  expect(risks('.gitea/workflows/x.yaml')).toEqual(['ci']);
  expect(risks('Jenkinsfile')).toEqual(['ci']);
  expect(risks('a/Cargo.toml')).toEqual(['executes', 'dependencies']);
  expect(risks('requirements-dev.txt')).toEqual(['executes', 'dependencies']);
  expect(risks('Cargo.lock')).toEqual(['dependencies', 'generated']);
  expect(risks('package-lock.json')).toEqual(['dependencies', 'generated']);
  expect(risks('dist/a.js', { newBytes: 2 ** 21, isBinary: true })).toEqual(['large', 'binary', 'generated']);
  expect(risks('src/main.ts')).toEqual([]);
  expect(riskRank(risks('.vscode/x'))).toBeLessThan(riskRank(risks('go.sum')));
  expect(riskRank(risks('go.sum'))).toBeLessThan(riskRank(risks('src/main.ts')));
});

test('names fold as the most forgiving file system reads them', () => {
  const fold = (name: string): string => foldName(Buffer.from(name));
  expect(fold('.GIT')).toBe('.git');
  expect(fold('.git . .')).toBe('.git');
  expect(fold('.ｇｉｔ')).toBe('.git');
  expect(fold('...')).toBe('...');
  expect(foldName(Buffer.from([0xff, 0x2e]))).not.toBe('');
});

test('a name of the greatest length is judged at once', () => {
  const started = performance.now();
  for (const name of [
    '.'.repeat(255),
    `git~${'1'.repeat(250)}`,
    `requirements${'.'.repeat(240)}`,
    ' '.repeat(255),
  ])
    risks(name);
  expect(performance.now() - started).toBeLessThan(100);
});
