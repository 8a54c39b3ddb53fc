// Two rules about where code lives: which module may import which, and names that say nothing.
import { dirname, relative, resolve, sep } from 'node:path';

/** Module → the modules (or single files) it may import. A module may always import itself. */
const ALLOWED = {
  protocol: [],
  'snapshot-format': ['protocol'],
  sidecar: ['protocol', 'snapshot-format'],
  cli: ['protocol'],
  supervisor: ['protocol', 'snapshot-format', 'sidecar/wire.ts'],
  // The entry is the one file that joins the command line and the daemon into one bundle.
  'cli/holdfast.ts': ['protocol', 'supervisor', 'cli'],
  extension: ['protocol'],
  webview: ['protocol'],
};
const MODULES = Object.keys(ALLOWED).sort((a, b) => b.length - a.length);
const VAGUE = /^(utils?|helpers?|commons?|misc|managers?)$/i;

/** @param {string} path relative to the root of the repository */
function moduleOf(path) {
  return MODULES.find((module) => path === module || path.startsWith(`${module}/`));
}

/** @param {string} from @param {string} to both relative to the root; the reason against it, if there is one */
export function importProblem(from, to) {
  const own = moduleOf(from);
  const target = moduleOf(to);
  if (target === undefined) {
    return own !== undefined && !to.startsWith('node_modules/') && to !== 'package.json'
      ? `${own} imports nothing outside the modules (${to})`
      : undefined;
  }
  // Tests, benches and scripts stand outside the modules and may look into any of them.
  if (own === undefined || own === target) return undefined;
  const allowed = /** @type {Record<string, readonly string[]>} */ (ALLOWED)[own] ?? [];
  if (allowed.includes(target) || allowed.includes(to)) return undefined;
  return `${own} must not import ${to}: it may import ${['itself', ...allowed].join(', ')}`;
}

/** @type {import('eslint').Rule.RuleModule} */
const oneWayImports = {
  meta: { type: 'problem', messages: { oneWay: '{{problem}}' } },
  create(context) {
    const from = relative(context.cwd, context.filename).split(sep).join('/');
    /** @param {any} node */
    const check = (node) => {
      const name = node.source?.value ?? node.argument?.literal?.value;
      if (typeof name !== 'string' || !name.startsWith('.')) return;
      const to = relative(context.cwd, resolve(dirname(context.filename), name))
        .split(sep)
        .join('/');
      const problem = importProblem(from, to);
      if (problem !== undefined) context.report({ node, messageId: 'oneWay', data: { problem } });
    };
    return {
      ImportDeclaration: check,
      ExportNamedDeclaration: check,
      ExportAllDeclaration: check,
      ImportExpression: check,
      TSImportType: check,
    };
  },
};

/** @type {import('eslint').Rule.RuleModule} */
const tellingNames = {
  meta: { type: 'problem', messages: { vague: '"{{name}}" says nothing about what is in it' } },
  create(context) {
    return {
      Program(node) {
        const path = relative(context.cwd, context.filename).split(sep);
        for (const part of path) {
          const name = part.split('.')[0] ?? '';
          const last = name.split(/[-_]/).at(-1) ?? '';
          if (VAGUE.test(last)) context.report({ node, messageId: 'vague', data: { name } });
        }
      },
    };
  },
};

export default { rules: { 'one-way-imports': oneWayImports, 'telling-names': tellingNames } };
