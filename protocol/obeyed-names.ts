// More names that `risk.ts` judges by, as `foldName` gives them: what a program obeys because it finds it in the folder in
// which it is started or which an editor opens. By who obeys it, one place for each family of programs. Data only.

/** Names, separated by white space. */
function names(...lists: readonly string[]): string[] {
  return lists.flatMap((list) => list.split(/\s+/));
}

/** Folders, and links and files called so. */
export const OBEYED_FOLDERS: ReadonlySet<string> = new Set([
  // Other version control systems, whose repositories have hooks and programs in their configuration; hooks of git.
  ...names('.hg .svn .bzr .jj .sl .pijul _darcs', '.git-hooks git-hooks githooks .hooks .yorkie'),
  // Editors, and language servers that start what a project names.
  ...names('.vs .theia .positron .nova .helix .nvim .emacs.d .settings .externaltoolbuilders nbproject .run'),
  ...names(
    '.bsp .bloop .metals .lsp .calva .clj-kondo .sourcekit-lsp .swiftpm .ropeproject .ipython .jupyter',
  ),
  // Coding agents: instructions, hooks, MCP servers, skills and plugins.
  ...names('.agent .mcp .clinerules .cline .copilot .kilocode .amazonq .augment .trae .junie .factory .amp'),
  ...names(
    '.goose .warp .rovodev .zencoder .qoder .codebuddy .iflow .openhands .serena .antigravity .pi .grok',
  ),
  ...names('.storybook .ladle'),
  ...names('.plugin .claude-plugin .codex-plugin .cursor-plugin .idx'),
  // Versions of tools and environments of shells.
  ...names('mise .rtx .asdf .proto .moon .flox .devenv .shadowenv.d .hermit .pixi .venv venv'),
  // Programs that editors, linters and builds load without a question.
  ...names('node_modules site-packages buildsrc build-logic rakelib .nuke .dvc .terraform'),
]);

/** Folders of build servers. */
export const MORE_CI_FOLDERS: ReadonlySet<string> = new Set(
  names(
    '.gitlab-ci .tekton .harness .semaphore .builds .drone .zuul.d zuul.d .prow .vsts-ci .pipelines .azuredevops',
    '.buddy .codefresh .bitbucket .concourse .dagger .cloudbuild .rwx .mint .screwdriver ci_scripts',
  ),
);

/** Files. */
export const OBEYED_FILES: ReadonlySet<string> = new Set([
  // Shells, debuggers and interpreters that read a file of the current folder.
  ...names('.bash_login .bash_logout .bash_aliases .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login'),
  ...names('.inputrc .screenrc .tmux.conf .curlrc .wgetrc .netrc .autoenv .autoenv.zsh .flaskenv'),
  ...names('.pdbrc .pdbrc.py .pythonrc .pythonstartup .irbrc .pryrc .ghci .ocamlinit .erlang .iex.exs'),
  ...names('.rprofile .renviron .rdata .psqlrc .sqliterc .user.ini php.ini .htaccess web.config user.clj'),
  ...names('startup.jl pyvenv.cfg ipython_config.py gunicorn.conf.py ansible.cfg .radare2rc desktop.ini'),
  ...names('autorun.inf .hgrc .rvmrc .simplecov .yardopts .tern-project .hintrc'),
  // Versions of tools: some name a program, and all decide which one is fetched and run.
  ...names('.nvmrc .node-version .python-version .ruby-version .java-version .go-version .swift-version'),
  ...names(
    '.terraform-version .sdkmanrc .prototools .asdfrc rust-toolchain rust-toolchain.toml .bazelversion',
  ),
  ...names('.bazeliskrc .buckversion .mill-version .rtx.toml .vfox.toml .pkgx.yaml .pkgx.yml pkgx.yaml'),
  ...names('pkgx.yml aqua.yaml aqua.yml foreman.toml aftman.toml rokit.toml hermit.hcl devshell.toml'),
  ...names('devenv.nix devenv.yaml devenv.lock pixi.toml guix.scm manifest.scm channels.scm mintfile'),
  // Editors and language servers.
  ...names('.gvimrc _vimrc _exrc .lvimrc .local.vimrc .vimrc.local .ideavimrc .project.vim .localrc.lua'),
  ...names(
    '.lazy.lua .neoconf.json .nlsp.json .lite_project.lua .kakrc .emacs .dir-locals-2.el .eldev eldev',
  ),
  ...names(
    'eask cask .vimspector.json .ycm_extra_conf.py .projections.json .project .classpath .factorypath',
  ),
  ...names('.clangd .ccls compile_commands.json compile_flags.txt rust-project.json rust-analyzer.toml'),
  ...names('.rust-analyzer.toml buildserver.json hie.yaml .merlin .luarc.json .luarc.jsonc omnisharp.json'),
  ...names('launchsettings.json pyrightconfig.json .solargraph.yml erlang_ls.config qodana.yaml qodana.yml'),
  // Coding agents.
  ...names('agent.md claude.local.md codex.md crush.md warp.md replit.md skill.md copilot-instructions.md'),
  ...names('.goosehints .roomodes .kilocodemodes .augment-guidelines .continuerc.json .rules mcp.json'),
  ...names(
    'mcp_config.json mcp_settings.json mcp-servers.json cline_mcp_settings.json gemini-extension.json',
  ),
  ...names('claude_desktop_config.json conductor.json .replit replit.nix .gitpod.yml .stackblitzrc'),
  ...names('devfile.yaml .devfile.yaml'),
  // Hooks of commits, and what commits are checked and released with.
  ...names('.simple-git-hooks.json simple-git-hooks.js .simple-git-hooks.js .simple-git-hooks.cjs'),
  ...names('simple-git-hooks.json simple-git-hooks.cjs .nano-staged.json nano-staged.json .nano-staged.js'),
  ...names(
    'nano-staged.js .rusty-hook.toml hk.pkl cog.toml grumphp.yml grumphp.yml.dist grumphp.yaml .gitlint',
  ),
  ...names('.overcommit.yaml .czrc .cz.json .cz.toml cz.toml .talismanrc captainhook.json.dist'),
  // Package managers that lack a line in `risky-names.ts`.
  ...names('pip.conf pip.ini .pypirc uv.toml poetry.toml pdm.toml .pdm.toml hatch.toml hatch_build.py'),
  ...names('.condarc condarc .gemrc'),
  // Linters, formatters and type checkers that load what their configuration names, mostly when a file is opened.
  ...names('.pylintrc pylintrc .flake8 mypy.ini .mypy.ini .coveragerc .rubocop.yml .rspec .oxlintrc.json'),
  ...names('tslint.json .xo-config .golangci.yml .golangci.yaml .golangci.toml .golangci.json .tflint.hcl'),
  ...names(
    '.scalafmt.conf .scalafix.conf .formatter.exs .credo.exs .luacheckrc .luacov .busted .perlcriticrc',
  ),
  ...names('.proverc .perltidyrc phpstan.neon phpstan.neon.dist phpstan.dist.neon psalm.xml psalm.xml.dist'),
  ...names('.php-cs-fixer.php .php-cs-fixer.dist.php .php_cs .php_cs.dist rector.php ecs.php phpcs.xml'),
  ...names('phpcs.xml.dist .phpcs.xml .phpcs.xml.dist'),
]);

/** Families of such files. */
export const OBEYED_FAMILY = new RegExp(
  [
    // Their configurations name plugins and parsers by path, also those that are data.
    /^\.?(eslint|prettier|stylelint|babel|postcss|swc|mocha|nyc|c8|ava|tap|jest|release|remark|textlint|htmlhint|commitlint|lintstaged|lint-staged)rc(\.|$)/,
    /^\.markdownlint-cli2\./,
    /^\.env\./,
    /^\.aider/,
    /^\.roorules|^\.clinerules/,
    /^jupyter_[a-z_]*config\./,
    /^\.?bazelrc|\.bazelrc$/,
    /^package@swift[a-z0-9.-]*\.swift$/,
    /^\.vscode-test\./,
  ]
    .map(({ source }) => source)
    .join('|'),
);

/** Endings of such files. Windows finds programs by them in the current folder, before all others. */
export const OBEYED_ENDINGS: readonly string[] = [
  ...names(
    '.exe .com .bat .cmd .scr .pif .cpl .lnk .hta .msi .msc .vbs .vbe .wsf .wsh .jse .ps1 .psm1 .psd1 .reg',
  ),
  ...names('.sublime-workspace .sublime-build .code-profile .code-snippets .vsix .iml .ipr .iws .launch'),
  ...names('.rproj .xcworkspacedata .command .run.xml .runsettings'),
];

/** Files of build systems and of what runs tasks. */
export const MORE_BUILD_FILES: ReadonlySet<string> = new Set([
  ...names('angular.json project.json workspace.json nest-cli.json rush.json command-line.json'),
  ...names(
    'turbo.jsonc moon.yml jsr.json .ember-cli .watchmanconfig wrangler.toml wrangler.json wrangler.jsonc',
  ),
  ...names('vercel.json netlify.toml firebase.json serverless.yml serverless.yaml cdk.json cdktf.json'),
  ...names('pulumi.yaml pulumi.yml fly.toml render.yaml app.json heroku.yml nixpacks.toml railway.json'),
  ...names('samconfig.toml app.yaml amplify.yml garden.yml project.garden.yml helmfile.yaml helmfile.yml'),
  ...names('kustomization.yaml kustomization.yml terragrunt.hcl docker-bake.hcl docker-bake.json'),
  ...names('environment.yaml conda.yaml meta.yaml pytest.toml .pytest.ini .pytest.toml conf.py mkdocs.yml'),
  ...names(
    'mkdocs.yaml book.toml buildout.cfg pavement.py invoke.yaml manage.py snakefile dvc.yaml mlproject',
  ),
  ...names('cross.toml bacon.toml .air.toml magefile.go .goreleaser.yml .goreleaser.yaml goreleaser.yml'),
  ...names('gradle-wrapper.properties gradle-wrapper.jar maven-wrapper.properties maven-wrapper.jar'),
  ...names('build.properties ivy.xml ivysettings.xml .sbtopts .jvmopts .sbtrc .mill-opts mill bleep.yaml'),
  ...names('build.clj build.boot nbb.edn figwheel-main.edn'),
  ...names(
    'meson.options autogen.sh bootstrap bootstrap.sh aclocal.m4 tupfile tupfile.lua tuprules.tup jamfile',
  ),
  ...names('jamroot waf .buckconfig .buckconfig.local targets .plzconfig pleasew pants repo.bazel'),
  ...names('workspace.bzlmod tilt_config.json'),
  ...names('dotnet-tools.json build.cake cake.config msbuild.rsp directory.build.rsp paket.dependencies'),
  ...names(
    'project.swift workspace.swift tuist.swift project.yml appfile matchfile gymfile scanfile snapfile',
  ),
  ...names('deliverfile pluginfile .swiftlint.yml'),
  ...names('config.ru guardfile thorfile capfile berksfile puppetfile appraisals steepfile .autotest'),
  ...names('robofile.php castor.php deploy.php phpbench.json infection.json infection.json5 behat.yml'),
  ...names('codeception.yml phpunit.dist.xml rebar.config.script rebar3 erlang.mk elvis.config config.exs'),
  ...names('runtime.exs dev.exs test.exs prod.exs gleam.toml project.toml juliaproject.toml build.jl'),
  ...names('setup.lhs cabal.config shakefile.hs esy.json myocamlbuild.ml dune-workspace _tags _targets.r'),
  ...names('dist.ini .overmind.env'),
]);

/** Families and endings of them. */
export const MORE_BUILD_FAMILY = new RegExp(
  [
    /^(ts|js)config([.-][a-z0-9._-]{0,100})?\.json$/,
    /^(jenkins|proc|rake|just|snake)file\.[a-z0-9_-]+$/,
    /^cabal\.project\./,
    /\.[a-z]{2,10}proj$/,
    /\.(rake|thor|tf|tf\.json|hcl|m4|make|just|smk|bxl|cake|ninja|jam|rsp|slnf|nuspec|xctestplan|podspec\.json|app\.src\.script|do)$/,
  ]
    .map(({ source }) => source)
    .join('|'),
);

/** Files of build servers, and what decides there who has to agree. */
export const MORE_CI_FILES: ReadonlySet<string> = new Set(
  names(
    '.build.yml .travis.yaml .drone.yaml .drone.jsonnet .drone.star .cirrus.yaml .cirrus.star .gitlab-ci.json',
    'buildspec.yml buildspec.yaml codefresh.yml bitrise.yml codemagic.yaml screwdriver.yaml .scrutinizer.yml',
    'shippable.yml .zuul.yaml zuul.yaml appveyor.yaml .appveyor.yaml cloudbuild.yml cloudbuild.json jitpack.yml',
    '.onedev-buildspec.yml .space.kts dagger.json buddy.yml .readthedocs.yml .readthedocs.yaml renovate.json',
    'renovate.json5 .renovaterc .renovaterc.json .mergify.yml mergify.yml .pullapprove.yml codeowners',
    'release-please-config.json dependabot.yml',
  ),
);
export const CI_FAMILY =
  /\.gitlab-ci\.ya?ml$|\.jenkinsfile$|^jenkinsfile\.|^\.?azure-pipelines[a-z0-9._-]{0,100}\.ya?ml$/;

/** Lock files and the like that lack a line in `risky-names.ts`. */
export const MORE_DEPENDENCY_FILES: ReadonlySet<string> = new Set(
  names(
    'pdm.lock pylock.toml pixi.lock conda-lock.yml libs.versions.toml gems.locked stack.yaml.lock renv.lock',
    'manifest.toml cabal.project.freeze rebar.lock symfony.lock paket.lock conan.lock devbox.lock jsr.json',
    'cartfile.resolved mise.lock .terraform.lock.hcl module.bazel.lock verification-metadata.xml',
  ),
);
