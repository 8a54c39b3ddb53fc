/**
 * What makes a change worth a second look, the most dangerous first. Everything here is judged by names, types and
 * modes, which the agent chose: a rule may only ever flag too much.
 *
 * - `executes`: it can run on the person's machine without being started on purpose: by opening the folder, by a commit
 *   or checkout, by installing dependencies, by a build or a test, or because it is executable.
 * - `outside`: a link that may lead out of the tree.
 * - `ci`: it runs on a build server, often with secrets.
 * - `dependencies`: it decides which foreign code is installed.
 * - `mode`: permission bits changed.
 * - `large`, `binary`: nobody reads it line by line.
 * - `generated`: made by a program; a reader may skip it.
 */
export const RISKS = [
  'executes',
  'outside',
  'ci',
  'dependencies',
  'mode',
  'large',
  'binary',
  'generated',
] as const;
export type Risk = (typeof RISKS)[number];

/** Risks that need a yes of their own before a change leaves the sandbox. */
export const QUARANTINED_RISKS: ReadonlySet<Risk> = new Set<Risk>(['executes', 'outside', 'ci']);

/** Files of at least this many bytes are `large`. */
export const LARGE_FILE_BYTES = 2 ** 20;

/** What is known of one changed path. */
export interface RiskyEntry {
  /** The names below the workspace, as bytes. */
  readonly names: readonly Uint8Array[];
  /** As it will be; of a deleted entry, as it was. */
  readonly type: 'file' | 'directory' | 'symlink' | 'fifo' | 'socket';
  /** Permission bits before and after; null if nothing existed or exists. */
  readonly oldMode: number | null;
  readonly newMode: number | null;
  /** Size after the change; null if it is no file. */
  readonly newBytes: number | null;
  /** The target of a link, as bytes. */
  readonly link?: Uint8Array | null | undefined;
  /** Whether the content is no text; undefined if nobody has looked: then the name decides. */
  readonly isBinary?: boolean | undefined;
}

/** Names of folders (and of links and files called so) whose content programs on the person's machine obey. */
const EXECUTING_FOLDERS = new Set([
  '.git',
  '.vscode',
  '.vscode-server',
  '.idea',
  '.fleet',
  '.zed',
  '.cursor',
  '.windsurf',
  '.devcontainer',
  '.husky',
  '.lefthook',
  '.lefthook-local',
  '.mise',
  '.vim',
  '.githooks',
  '.claude',
  '.gemini',
  '.codex',
  '.qwen',
  '.kiro',
  '.crush',
  '.opencode',
  '.aider',
  '.continue',
  '.roo',
  '.agents',
  '.yarn',
  '.mvn',
  '.gradle',
  '.cargo',
  '.bundle',
  '.direnv',
  '.config',
  '.local',
  '.ssh',
  '.gnupg',
]);

/** Names of files that programs on the person's machine obey. */
const EXECUTING_FILES = new Set([
  '.gitattributes',
  '.gitmodules',
  '.gitconfig',
  '.lfsconfig',
  '.devcontainer.json',
  'devcontainer.json',
  '.envrc',
  '.mcp.json',
  'opencode.json',
  'opencode.jsonc',
  'agents.md',
  'claude.md',
  'gemini.md',
  '.cursorrules',
  '.windsurfrules',
  '.clinerules',
  '.aider.conf.yml',
  '.holdfastignore',
  'holdfast.yaml',
  '.pre-commit-config.yaml',
  '.pre-commit-hooks.yaml',
  'lefthook.yml',
  'lefthook.yaml',
  '.lefthook.yml',
  '.overcommit.yml',
  '.lintstagedrc',
  '.lintstagedrc.json',
  '.npmrc',
  '.yarnrc',
  '.yarnrc.yml',
  '.pnpmfile.cjs',
  '.pnpmfile.mjs',
  'package.json',
  'binding.gyp',
  'setup.py',
  'sitecustomize.py',
  'usercustomize.py',
  'build.rs',
  'conftest.py',
  '.bashrc',
  '.bash_profile',
  '.profile',
  '.zshrc',
  '.zshenv',
  '.vimrc',
  '.exrc',
  '.nvimrc',
  '.nvim.lua',
  '.dir-locals.el',
  '.editorconfig.el',
  '.gdbinit',
  '.lldbinit',
  '.mise.toml',
  'mise.toml',
  '.tool-versions',
  '.env',
]);
/** Families of such files: hooks of commits and checkouts, package managers, and what agents are told. */
const EXECUTING_FAMILY =
  /^(\.?lefthook(-local)?(\.|$)|\.?lint-?staged|\.?commitlint|\.huskyrc|\.pnp\.|\.?pnpmfile\.|\.?mise\.|prek\.toml$|\.pre-commit-config\.|captainhook\.json$|bunfig\.toml$|package\.(yaml|json5)$|\.crush\.json$|crush\.json$|qwen\.md$|agents\.override\.md$|\.bazelrc$|\.?eslint(rc|\.config)\.[cm]?[jt]s$|\.?prettier(rc|\.config)\.[cm]?[jt]s$)/;
/**
 * Manifests of dependencies and files of build systems, by name: installing, building or testing runs
 * what they say, and many editors do that on opening the folder.
 */
const BUILD_FILES = new Set([
  'composer.json',
  'gemfile',
  'gems.rb',
  'rakefile',
  'pyproject.toml',
  'setup.cfg',
  'pipfile',
  'noxfile.py',
  'tox.ini',
  'pytest.ini',
  'dodo.py',
  'fabfile.py',
  'tasks.py',
  'environment.yml',
  'cargo.toml',
  'go.mod',
  'go.work',
  'pom.xml',
  'gradlew',
  'gradlew.bat',
  'gradle.properties',
  'mvnw',
  'mvnw.cmd',
  'build.xml',
  'build.sbt',
  'build.sc',
  'build.mill',
  'project.clj',
  'deps.edn',
  'shadow-cljs.edn',
  'bb.edn',
  'cmakelists.txt',
  'cmakepresets.json',
  'cmakeuserpresets.json',
  'configure',
  'configure.ac',
  'configure.in',
  'meson.build',
  'meson_options.txt',
  'sconstruct',
  'sconscript',
  'wscript',
  'build.ninja',
  'build.zig',
  'build.zig.zon',
  'xmake.lua',
  'premake5.lua',
  'conanfile.py',
  'conanfile.txt',
  'vcpkg.json',
  'workspace',
  'workspace.bazel',
  'module.bazel',
  'build',
  'build.bazel',
  'buck',
  'pants.toml',
  'justfile',
  '.justfile',
  'procfile',
  'tiltfile',
  'vagrantfile',
  'brewfile',
  'fastfile',
  'podfile',
  'cartfile',
  'dangerfile',
  'package.swift',
  'pubspec.yaml',
  'mix.exs',
  'rebar.config',
  'stack.yaml',
  'setup.hs',
  'cabal.project',
  'dune',
  'dune-project',
  'makefile.pl',
  'build.pl',
  'cpanfile',
  'flake.nix',
  'default.nix',
  'shell.nix',
  'nuget.config',
  'global.json',
  'directory.packages.props',
  'deno.json',
  'deno.jsonc',
  'turbo.json',
  'nx.json',
  'pnpm-workspace.yaml',
  'lerna.json',
  'artisan',
  'phpunit.xml',
  'phpunit.xml.dist',
  'devbox.json',
  'skaffold.yaml',
]);
const BUILD_FAMILY = new RegExp(
  [
    /^(gnu|bsd)?makefile(\.(?!([cm]?[jt]sx?|py|rs|go|md)$)[a-z0-9_-]+)?$/,
    /^(build|settings|init)\.gradle(\.kts)?$/,
    /^(docker|container)file([._-].*)?$/,
    /^(docker-)?compose([._-].*)?\.ya?ml$/,
    /^\.?taskfile(\.dist)?\.ya?ml$/,
    /^(requirements|constraints)[a-z0-9._-]{0,100}\.(txt|in)$/,
    /^(gulpfile|gruntfile)\.[cm]?[jt]s$/,
    // Configurations that are programs, of the tools that a build, a test or an editor loads.
    /^\.?(vite|vitest|jest|webpack|rollup|babel|postcss|tailwind|next|nuxt|svelte|astro|remix|metro|karma|cypress|playwright|tsup|tsdown|esbuild|rspack|rsbuild|wdio|protractor|stylelint|commitlint|release|semantic-release|snowpack|craco|vue|angular|ember-cli-build|mocha|ava|nyc|plop|knip|drizzle|knex|prisma|expo|app|storybook|uno|windi|quasar|gatsby|docusaurus|eleventy)(\.(config|workspace|setup))(\.[a-z0-9-]+)?\.[cm]?[jt]sx?$/,
    /^\.(babelrc|mocharc|stylelintrc|swcrc|releaserc|lintstagedrc)\.[cm]?[jt]s$/,
  ]
    .map(({ source }) => source)
    .join('|'),
);
const BUILD_ENDINGS = [
  ...['.gemspec', '.podspec', '.cabal', '.opam', '.nimble', '.rockspec', '.gradle', '.gradle.kts', '.sbt'],
  ...['.csproj', '.fsproj', '.vbproj', '.vcxproj', '.proj', '.props', '.targets', '.tasks', '.sln', '.slnx'],
  ...[
    '.pbxproj',
    '.xcscheme',
    '.xcconfig',
    '.cmake',
    '.mk',
    '.mak',
    '.bzl',
    '.bazel',
    '.nix',
    '.pro',
    '.pri',
  ],
];

const EXECUTING_ENDINGS = ['.code-workspace', '.sublime-project', '.pth', '.desktop'];

/** What a bare git repository has at its top: git obeys one wherever it finds it. */
const BARE_REPOSITORY = new Set(['head', 'commondir', 'gitdir', 'packed-refs', 'config.worktree']);
/** Names of git's hooks: they are files of a folder that some configuration may name. */
const GIT_HOOK =
  /^(applypatch-msg|pre-applypatch|post-applypatch|pre-commit|pre-merge-commit|prepare-commit-msg|commit-msg|post-commit|pre-rebase|post-checkout|post-merge|pre-push|pre-receive|update|proc-receive|post-receive|post-update|reference-transaction|push-to-checkout|pre-auto-gc|post-rewrite|sendemail-validate|fsmonitor-watchman|post-index-change)$/;

const CI_FOLDERS = new Set([
  '.github',
  '.gitlab',
  '.gitea',
  '.forgejo',
  '.circleci',
  '.buildkite',
  '.teamcity',
  '.woodpecker',
  '.ci',
  '.azure-pipelines',
]);
const CI_FILES = new Set([
  '.gitlab-ci.yml',
  '.gitlab-ci.yaml',
  '.travis.yml',
  'azure-pipelines.yml',
  'azure-pipelines.yaml',
  'jenkinsfile',
  '.drone.yml',
  '.woodpecker.yml',
  '.woodpecker.yaml',
  'bitbucket-pipelines.yml',
  'appveyor.yml',
  '.appveyor.yml',
  '.cirrus.yml',
  'cloudbuild.yaml',
  'wercker.yml',
  'earthfile',
]);

const DEPENDENCY_FILES = new Set([
  'package.json',
  'package-lock.json',
  'npm-shrinkwrap.json',
  'yarn.lock',
  'pnpm-lock.yaml',
  'pnpm-workspace.yaml',
  'bun.lock',
  'bun.lockb',
  'deno.json',
  'deno.jsonc',
  'deno.lock',
  'cargo.toml',
  'cargo.lock',
  'go.mod',
  'go.sum',
  'go.work',
  'pipfile',
  'pipfile.lock',
  'poetry.lock',
  'uv.lock',
  'pyproject.toml',
  'setup.py',
  'setup.cfg',
  'environment.yml',
  'gemfile',
  'gemfile.lock',
  'composer.json',
  'composer.lock',
  'pom.xml',
  'build.gradle',
  'build.gradle.kts',
  'settings.gradle',
  'settings.gradle.kts',
  'gradle.lockfile',
  'packages.lock.json',
  'packages.config',
  'mix.exs',
  'mix.lock',
  'flake.nix',
  'flake.lock',
  'pubspec.yaml',
  'pubspec.lock',
  'podfile',
  'podfile.lock',
  'package.swift',
  'package.resolved',
  'dockerfile',
]);
const DEPENDENCY_NAME = /^(requirements|constraints)[a-z0-9._-]{0,100}\.(txt|in)$/;

const GENERATED_FOLDERS = new Set([
  'node_modules',
  'vendor',
  'dist',
  'build',
  'out',
  'target',
  'coverage',
  '__pycache__',
  '.next',
  '.nuxt',
  '__snapshots__',
  '__generated__',
  'generated',
]);
const GENERATED_ENDINGS = [
  '.min.js',
  '.min.css',
  '.map',
  '.pb.go',
  '_pb2.py',
  '_pb2_grpc.py',
  '.pb.cc',
  '.pb.h',
  '.snap',
  '.lock',
  '-lock.json',
  '-lock.yaml',
  '.pyc',
  '.g.dart',
  '.designer.cs',
];

const BINARY_NAME =
  /\.(png|jpe?g|gif|webp|ico|bmp|tiff?|pdf|zip|gz|tgz|bz2|xz|zst|7z|rar|jar|war|class|exe|dll|so|dylib|a|o|obj|wasm|node|pyc|woff2?|ttf|otf|eot|mp[34]|mov|avi|webm|ogg|flac|wav|db|sqlite3?|bin|dat|iso|img)$/;

/** Characters that some file systems ignore in names, so that `.g\u200cit` is `.git` there. */
const IGNORED_CHARACTERS = /\p{Default_Ignorable_Code_Point}/gu;

/**
 * A name as the most forgiving file system might read it: without case, composed, without what HFS+ ignores, without
 * what NTFS drops from the end, and without the name of a stream. Two names that some system takes for one fold to the
 * same text; other names may too.
 */
export function foldName(name: Uint8Array): string {
  const text = Buffer.from(name.buffer, name.byteOffset, name.byteLength).toString('utf8');
  const folded = text
    .replace(IGNORED_CHARACTERS, '')
    .normalize('NFKC')
    .toUpperCase()
    .toLowerCase()
    .normalize('NFKC')
    .replace(IGNORED_CHARACTERS, '');
  const colon = folded.indexOf(':', 1);
  const stem = colon === -1 ? folded : folded.slice(0, colon);
  let end = stem.length;
  while (end > 0 && (stem[end - 1] === '.' || stem[end - 1] === ' ')) end -= 1;
  return shortNameOf(end === 0 ? stem : stem.slice(0, end));
}

/** The long name that an 8.3 name of NTFS may stand for, if it matters here: `git~1` is `.git`. */
function shortNameOf(name: string): string {
  return /^git~\d{1,3}$/.test(name) ? '.git' : name;
}

/** The risks of a change, the most dangerous first. Never throws. */
export function risksOf(entry: RiskyEntry): Risk[] {
  const names = entry.names.map(foldName);
  const own = names.at(-1) ?? '';
  const folders = names.slice(0, -1);
  const { newMode, oldMode, newBytes, type } = entry;
  const found = new Set<Risk>();
  const isOrIsIn = (set: ReadonlySet<string>): boolean => names.some((name) => set.has(name));

  if (isOrIsIn(EXECUTING_FOLDERS) || names.some((name) => EXECUTING_FILES.has(name))) found.add('executes');
  if (EXECUTING_FAMILY.test(own)) found.add('executes');
  if (EXECUTING_ENDINGS.some((ending) => own.endsWith(ending))) found.add('executes');
  const isBuild = BUILD_FILES.has(own) || BUILD_ENDINGS.some((ending) => own.endsWith(ending));
  if (type !== 'directory' && (isBuild || BUILD_FAMILY.test(own))) found.add('executes');
  if (BARE_REPOSITORY.has(own) || GIT_HOOK.test(own)) found.add('executes');
  // Git reads the configuration of whatever looks like a repository, and this may be made one.
  if (own === 'config' && (folders.at(-1) ?? '').endsWith('git')) found.add('executes');
  if (names.some((name) => name.endsWith('.git'))) found.add('executes');
  const runs = (mode: number | null): boolean => mode !== null && (mode & 0o111) !== 0;
  if (type === 'file' && runs(newMode)) found.add('executes');

  if (type === 'symlink' && mayLeaveTree(entry.link ?? null, folders.length)) found.add('outside');
  // Whatever writes through a harmless name would write git's hooks, or what an editor obeys.
  const target = type === 'symlink' ? targetNames(entry.link ?? null) : [];
  if (
    target.some((name) => EXECUTING_FOLDERS.has(name) || EXECUTING_FILES.has(name) || name.endsWith('.git'))
  )
    found.add('executes');
  if (isOrIsIn(CI_FOLDERS) || names.some((name) => CI_FILES.has(name))) found.add('ci');
  if (DEPENDENCY_FILES.has(own) || DEPENDENCY_NAME.test(own)) found.add('dependencies');
  if (oldMode !== null && newMode !== null && oldMode !== newMode && type !== 'symlink') found.add('mode');
  if ((newBytes ?? 0) >= LARGE_FILE_BYTES) found.add('large');
  const isBinary = entry.isBinary ?? (type === 'file' && BINARY_NAME.test(own));
  if (isBinary || type === 'fifo' || type === 'socket') found.add('binary');
  if (isOrIsIn(GENERATED_FOLDERS) || GENERATED_ENDINGS.some((ending) => own.endsWith(ending)))
    found.add('generated');
  return RISKS.filter((risk) => found.has(risk));
}

/** The names in the target of a link, folded. Backslashes separate names on some machines. */
function targetNames(link: Uint8Array | null): string[] {
  if (link === null) return [];
  const target = Buffer.from(link.buffer, link.byteOffset, link.byteLength).toString('latin1');
  return target.split(/[/\\]/).map((name) => foldName(Buffer.from(name, 'latin1')));
}

/**
 * Whether a link may lead out of the tree. Names before a `..` may themselves be links, so a target that goes down and up
 * again counts too. Backslashes separate names on some machines.
 */
function mayLeaveTree(link: Uint8Array | null, depth: number): boolean {
  if (link === null) return true;
  const target = Buffer.from(link.buffer, link.byteOffset, link.byteLength).toString('latin1');
  if (/^([/\\]|[a-zA-Z]:)/.test(target)) return true;
  let ups = 0;
  let hasGoneDown = false;
  for (const name of target.split(/[/\\]/)) {
    if (name === '' || name === '.') continue;
    if (name === '..') {
      if (hasGoneDown) return true;
      ups += 1;
    } else hasGoneDown = true;
  }
  return ups > depth;
}

/** The lower, the more dangerous; paths without risks come last. */
export function riskRank(risks: readonly Risk[]): number {
  const ranks = risks.map((risk) => RISKS.indexOf(risk));
  return ranks.length === 0 ? RISKS.length : Math.min(...ranks);
}
