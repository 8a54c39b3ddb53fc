// Lets a script that a page loads later use modules of the page's first script, so that neither is there twice.
import { readFile } from 'node:fs/promises';

/** Where the first script leaves what the second one uses. */
const PLACE = 'globalThis.holdfastShared';

/**
 * @typedef {object} SharedOptions
 * @property {string} entry the file of the first script's entry
 * @property {Readonly<Record<string, readonly string[]>>} shared module → the names that the second script uses of it
 * @property {(module: string) => string} pathOf the file of a module; a package is its own
 */

/**
 * The plugins of the two bundles. A name that the second script imports and the list lacks ends the build.
 *
 * @param {SharedOptions} options
 * @returns {{ first: import('esbuild').Plugin, second: import('esbuild').Plugin }}
 */
export function sharedModules({ entry, shared, pathOf }) {
  const modules = Object.entries(shared);
  const places = new Map(
    modules
      .flatMap(([module, names]) => names.map((name) => `${module} ${name}`))
      .map((key, at) => [key, at]),
  );
  const offer = modules.map(([module, names]) => {
    const list = names.map((name) => `${name} as shared${places.get(`${module} ${name}`)}`);
    return `import { ${list.join(', ')} } from ${JSON.stringify(pathOf(module))};`;
  });
  const all = [...places.values()].map((at) => `shared${at}`);
  return {
    first: {
      name: 'shared-modules-offered',
      setup(bundle) {
        bundle.onLoad({ filter: /\.tsx$/ }, async ({ path }) =>
          path === entry
            ? {
                // Last, because the order of imports is the order in which modules run.
                contents: `${await readFile(path, 'utf8')}\n${offer.join('\n')}\n${PLACE} = [${all.join(', ')}];`,
                loader: 'tsx',
              }
            : undefined,
        );
      },
    },
    second: {
      name: 'shared-modules-used',
      setup(bundle) {
        const RESOLVING = {};
        const moduleAt = new Map(modules.map(([module]) => [pathOf(module), module]));
        bundle.onResolve({ filter: /.*/ }, async (wanted) => {
          if (wanted.pluginData === RESOLVING || wanted.kind === 'entry-point') return undefined;
          const { kind, importer, resolveDir, namespace } = wanted;
          const at = { kind, importer, resolveDir, namespace, pluginData: RESOLVING };
          const isFile = wanted.path.startsWith('.');
          const module = moduleAt.get(isFile ? (await bundle.resolve(wanted.path, at)).path : wanted.path);
          return module === undefined ? undefined : { path: module, namespace: 'shared-modules' };
        });
        bundle.onLoad({ filter: /.*/, namespace: 'shared-modules' }, ({ path: module }) => ({
          contents: (shared[module] ?? [])
            .map((name, at) => {
              const place = `${PLACE}[${places.get(`${module} ${name}`)}]`;
              return `const name${at} = ${place};\nexport { name${at} as ${name} };`;
            })
            .join('\n'),
        }));
      },
    },
  };
}
