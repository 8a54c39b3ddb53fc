// Splits a bundle in two: what its entry needs at once, and modules that are loaded when something in them is used for the first time.
import { build } from 'esbuild';

/** @typedef {{ plugin: import('esbuild').Plugin, entry: () => string }} LateModules the plugin for the first bundle; then the source of the second */

/**
 * @param {{ isLate: (path: string) => boolean, file: string }} options which modules, by absolute path; the second bundle's name, beside the first
 * @returns {LateModules}
 */
export function lateModules({ isLate, file }) {
  const second = `./${file}`;
  /** @type {Map<string, string>} path → its name in the second bundle */
  const found = new Map();
  const RESOLVING = {};
  return {
    plugin: {
      name: 'late-modules',
      setup(bundle) {
        bundle.onResolve({ filter: /.*/ }, async (wanted) => {
          if (wanted.pluginData === RESOLVING || wanted.kind === 'entry-point') return undefined;
          if (wanted.path === second) return { path: second, external: true };
          const { kind, importer, resolveDir, namespace } = wanted;
          const at = { kind, importer, resolveDir, namespace, pluginData: RESOLVING };
          const { path, external } = await bundle.resolve(wanted.path, at);
          if (external || !isLate(path)) return undefined;
          if (!found.has(path)) found.set(path, `module${found.size}`);
          return { path, namespace: 'late-modules' };
        });
        bundle.onLoad({ filter: /.*/, namespace: 'late-modules' }, async ({ path }) => ({
          contents: standIn(await exportsOf(path), `require(${JSON.stringify(second)}).${found.get(path)}`),
          resolveDir: '/',
        }));
      },
    },
    // All in one module, so that an error is of the same class on whichever way it was reached.
    entry: () =>
      [...found].map(([path, name]) => `export * as ${name} from ${JSON.stringify(path)};`).join('\n'),
  };
}

/** @param {readonly string[]} names @param {string} source where they are; looked at when one of them is used */
function standIn(names, source) {
  // One loop instead of a line for each name: there are hundreds of them in the bundle that every window loads.
  return `let loaded;
for (const name of ${JSON.stringify(names)})
  Object.defineProperty(exports, name, { enumerable: true, get: () => (loaded ??= ${source})[name] });`;
}

/** @param {string} path of a module; the names that it exports */
async function exportsOf(path) {
  const { metafile } = await build({
    entryPoints: [path],
    bundle: true,
    write: false,
    metafile: true,
    platform: 'node',
    format: 'esm',
    outfile: 'names.mjs',
    logLevel: 'silent',
    external: ['vscode'],
  });
  return Object.values(metafile.outputs)[0]?.exports ?? [];
}
