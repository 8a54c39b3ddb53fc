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
  'karma.conf.js',
  'wdio.conf.ts',
  'unocss.config.ts',
  'graphql.config.js',
  'any-tool-of-tomorrow.config.mjs',
  '.graphqlrc.js',
  'pylintrc.toml',
  '.pylintrc',
  '.storybook/main.js',
  'gulpfile.babel.js',
  'Gruntfile.coffee',
  '.dependency-cruiser.js',
  '.size-limit.js',
  '.rvmrc',
  '.simplecov',
  'console.msc',
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

test.each([
  ['other repositories', '.hg/hgrc .jj/repo/config.toml .svn/wc.db .git-hooks/pre-push'],
  [
    'npm, pnpm, yarn, bun',
    '.npmrc .pnpmfile.cjs pnpm-workspace.yaml .yarnrc.yml bunfig.toml node_modules/x/index.js',
  ],
  [
    'TypeScript',
    'tsconfig.json packages/a/tsconfig.build.json jsconfig.json angular.json turbo.jsonc project.json',
  ],
  [
    'linters',
    '.eslintrc .eslintrc.json .prettierrc .stylelintrc.yml .oxlintrc.json .babelrc .mocharc.json tslint.json',
  ],
  [
    'Python',
    'conftest.py pip.conf uv.toml poetry.toml .venv/bin/x venv/pyvenv.cfg .pylintrc mypy.ini .flake8 .pdbrc',
  ],
  [
    'more Python',
    'a/site-packages/x.py .ropeproject/config.py jupyter_server_config.py docs/conf.py hatch_build.py',
  ],
  [
    'Rust',
    'build.rs .cargo/config.toml rust-toolchain rust-toolchain.toml rust-analyzer.toml rust-project.json',
  ],
  [
    'Java',
    'gradle/wrapper/gradle-wrapper.jar gradle/wrapper/gradle-wrapper.properties buildSrc/x.java .project .bsp/sbt.json',
  ],
  [
    'more Java',
    '.mvn/extensions.xml .classpath .factorypath a/.settings/x.prefs x.iml .bloop/a.json .run/a.run.xml',
  ],
  ['C and C++', 'compile_commands.json .clangd configure.ac x.m4 autogen.sh build.ninja .ycm_extra_conf.py'],
  [
    'Bazel and others',
    '.bazelrc user.bazelrc .bazelversion .bazeliskrc .buckconfig x.bxl TARGETS tupfile jamroot',
  ],
  [
    'Apple',
    'A.xcodeproj/project.pbxproj A.xcworkspace/contents.xcworkspacedata Package@swift-6.0.swift buildServer.json',
  ],
  [
    '.NET',
    'Properties/launchSettings.json x.runsettings omnisharp.json Directory.Build.rsp x.esproj dotnet-tools.json',
  ],
  ['Ruby', 'lib/tasks/a.rake config.ru .irbrc .pryrc .rspec .rubocop.yml Guardfile Rakefile.rb'],
  ['PHP', 'composer.json .user.ini .htaccess phpstan.neon .php-cs-fixer.dist.php rector.php grumphp.yml'],
  ['Elixir and Erlang', '.iex.exs .formatter.exs config/runtime.exs .erlang rebar.config.script'],
  ['R, Julia, Lua', '.Rprofile .RData x.Rproj Project.toml .luacheckrc .luarc.json'],
  ['Haskell and OCaml', '.ghci hie.yaml cabal.project.local .ocamlinit .merlin Setup.lhs'],
  [
    'hooks of commits',
    'lefthook.yml .husky/pre-commit .simple-git-hooks.json hk.pkl .gitlint .rusty-hook.toml',
  ],
  [
    'versions of tools',
    '.envrc .env.local mise/config.toml .tool-versions .nvmrc .prototools .python-version',
  ],
  ['environments', 'devenv.nix devshell.toml .flox/env.json .shadowenv.d/x guix.scm pixi.toml'],
  [
    'editors',
    '.lazy.lua .nvim/init.lua .helix/languages.toml .dir-locals-2.el .vs/x.json .neoconf.json .zed/tasks.json',
  ],
  [
    'agents',
    'CLAUDE.md CLAUDE.local.md AGENTS.md .clinerules/a.md SKILL.md .agent/rules/a.md .kilocode/mcp.json',
  ],
  [
    'MCP entries',
    '.mcp.json mcp.json .cursor/mcp.json .claude-plugin/plugin.json .junie/mcp/mcp.json .idx/dev.nix',
  ],
  ['Windows', 'git.exe npm.cmd build.bat x.ps1 a.lnk desktop.ini autorun.inf VSCODE~1/tasks.json'],
  ['infrastructure', 'main.tf a.tf.json terragrunt.hcl ansible.cfg helmfile.yaml docker-bake.hcl cdk.json'],
])('%s: what they obey in a folder can run on the machine of a person', (_who, paths) => {
  for (const path of paths.split(' ')) expect(risks(path), path).toContain('executes');
});

test.each([
  '.gitlab-ci.d/../.gitlab-ci.yml .github/actions/x/action.yml ci/test.gitlab-ci.yml .tekton/push.yaml buildspec.yml',
  'azure-pipelines.release.yml deploy.jenkinsfile Jenkinsfile.release .build.yml dagger.json codemagic.yaml',
  '.readthedocs.yaml renovate.json CODEOWNERS ci_scripts/ci_post_clone.sh .semaphore/semaphore.yml',
])('%s: they run on a build server, or decide who has to agree', (paths) => {
  for (const path of paths.split(' ')) expect(risks(path), path).toContain('ci');
});

test('what programs made comes after what has the same risk', () => {
  const hook = riskRank(risks('.husky/pre-commit'));
  const installed = riskRank(risks('node_modules/a/index.js'));
  expect(hook).toBeLessThan(installed);
  expect(installed).toBeLessThan(riskRank(risks('.github/workflows/a.yml')));
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
  const alike = ['src/lefthooks.ts', 'docs/commit.md', 'mise-en-place.md'];
  const built = [
    'src/makefile.ts',
    'docs/cargo.md',
    'composer.ts',
    'src/build.ts',
    'configure.ts',

    'src/env.ts',
    'lib/rake.rb',
    'test/test_a.py',
    'docs/agents/overview.md',
    'src/eslintrc-reader.ts',
    'src/platform.tfx',
    'README.md',
    'lib/mcp.ts',
    'a~b',
    'notes.txt~1~',
    'src/tsconfig-reader.ts',
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
