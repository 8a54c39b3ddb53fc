// Two rules about where code lives: which area and which module may import which, and names that say nothing.
import { dirname, relative, resolve, sep } from 'node:path';

/** Area → the areas (or single files) that it may import. An area may always import itself. */
const ALLOWED = {
  protocol: [],
  'snapshot-format': ['protocol'],
  sidecar: ['protocol', 'snapshot-format'],
  'egress-proxy': ['protocol'],
  project: ['protocol'],
  handoff: ['protocol', 'project'],
  hosts: ['protocol'],
  cli: ['protocol', 'project', 'handoff', 'hosts'],
  supervisor: ['protocol', 'project', 'snapshot-format', 'sidecar/wire.ts', 'egress-proxy/wire.ts'],
  // The entry is the one file that joins the command line and the daemon into one bundle.
  'cli/holdfast.ts': ['protocol', 'supervisor', 'hosts', 'cli'],
  // The messages are the contract of the pages and the extension.
  extension: [
    ...['protocol', 'project', 'handoff', 'hosts'],
    ...['webview/link.ts', 'webview/messages.ts', 'webview/late-messages.ts', 'webview/home-messages.ts'],
  ],
  webview: ['protocol'],
};
const AREAS = Object.keys(ALLOWED).sort((a, b) => b.length - a.length);

/**
 * Area → module → the modules of the same area that it may import. A module is a folder. It may import only modules above it in the
 * table, so imports cannot form a cycle, types included. Files directly in the area are its composition root: they may import
 * every module, and no module may import them.
 *
 * @type {Record<string, Record<string, readonly string[]>>}
 */
export const MODULES = {
  extension: {
    base: [],
    connection: ['base'],
    commands: ['base', 'connection'],
    images: ['base', 'connection'],
    hosts: ['base', 'connection', 'commands'],
    files: ['base', 'connection', 'commands'],
    sessions: ['base', 'connection', 'commands', 'files'],
    history: ['base', 'connection', 'commands', 'files', 'sessions'],
    snapshots: ['base', 'connection', 'commands', 'files', 'sessions'],
    handoff: ['base', 'connection', 'commands', 'files', 'sessions'],
    review: ['base', 'connection', 'commands', 'files', 'sessions', 'history', 'snapshots', 'handoff'],
    policy: ['base', 'connection', 'commands', 'sessions', 'history'],
    page: ['base', 'connection', 'commands', 'files', 'sessions', 'snapshots'],
    artifacts: ['base', 'connection', 'commands', 'files', 'sessions', 'handoff', 'page'],
    setups: ['base', 'connection', 'commands'],
    inbox: ['base', 'connection', 'commands', 'sessions'],
    home: ['base', 'connection', 'commands', 'sessions', 'page', 'inbox'],
    search: ['base', 'connection', 'commands', 'files', 'sessions'],
    terminals: ['base', 'connection', 'commands', 'files', 'sessions'],
    checks: ['base', 'connection', 'commands', 'files', 'sessions', 'terminals'],
    transfer: ['base', 'connection', 'commands', 'files', 'sessions'],
  },
  hosts: {
    base: [],
    ssh: ['base'],
    far: ['base'],
    connector: ['base', 'ssh', 'far'],
  },
  // The same table is in docs/architecture.md.
  supervisor: {
    base: [],
    store: ['base'],
    history: ['base', 'store'],
    conversation: ['base', 'store', 'history'],
    secrets: ['base', 'store'],
    engine: ['base', 'store'],
    egress: ['base', 'store', 'history', 'secrets'],
    setup: ['base', 'store', 'secrets', 'engine', 'egress'],
    profiles: ['base', 'store', 'engine', 'egress', 'setup'],
    workspace: ['base', 'store', 'history', 'profiles'],
    sandboxes: ['base', 'store', 'history', 'engine', 'egress', 'workspace'],
    agents: ['base', 'store', 'history', 'conversation', 'workspace', 'sandboxes'],
    snapshots: ['base', 'store', 'history', 'engine', 'profiles', 'workspace', 'sandboxes'],
    tools: [
      ...[
        'base',
        'store',
        'history',
        'conversation',
        'egress',
        'workspace',
        'sandboxes',
        'agents',
        'snapshots',
      ],
    ],
    reviews: ['base', 'store', 'history', 'workspace', 'snapshots'],
    turns: ['base', 'store', 'history', 'conversation', 'agents', 'workspace', 'sandboxes'],
    terminals: ['base', 'store', 'history', 'engine', 'workspace', 'sandboxes'],
    sessions: [
      ...[
        'base',
        'store',
        'history',
        'conversation',
        'engine',
        'workspace',
        'sandboxes',
        'snapshots',
        'turns',
      ],
    ],
    handoff: ['base', 'store', 'history', 'snapshots', 'reviews'],
    checks: ['base', 'store', 'history', 'snapshots', 'reviews', 'terminals', 'sessions'],
    manifests: ['base', 'store', 'history'],
    bundles: ['base', 'store', 'history', 'snapshots', 'sessions', 'manifests'],
    moves: ['base', 'store', 'sandboxes', 'snapshots', 'sessions', 'manifests', 'bundles'],
    doctor: ['store', 'secrets', 'engine', 'sandboxes'],
    rpc: [
      'base',
      'store',
      'history',
      'conversation',
      'secrets',
      'agents',
      'egress',
      'setup',
      'profiles',
      'workspace',
      'snapshots',
      'reviews',
      'turns',
      'terminals',
      'sessions',
      'handoff',
      'checks',
      'manifests',
      'bundles',
      'moves',
    ],
    daemon: [
      ...[
        'base',
        'store',
        'history',
        'conversation',
        'secrets',
        'engine',
        'egress',
        'setup',
        'profiles',
        'workspace',
        'sandboxes',
      ],
      ...[
        'agents',
        'snapshots',
        'tools',
        'reviews',
        'turns',
        'terminals',
        'sessions',
        'handoff',
        'checks',
        'manifests',
        'bundles',
        'moves',
        'doctor',
        'rpc',
      ],
    ],
  },
};
const VAGUE = /^(utils?|helpers?|commons?|misc|managers?)$/i;

/** @param {string} path relative to the root of the repository */
function areaOf(path) {
  return AREAS.find((area) => path === area || path.startsWith(`${area}/`));
}

/**
 * @param {string} from @param {string} to both relative to the root
 * @returns why `from` must not import `to`; undefined where it may
 */
export function importProblem(from, to) {
  const own = areaOf(from);
  const target = areaOf(to);
  if (target === undefined) {
    return own !== undefined && !to.startsWith('node_modules/') && to !== 'package.json'
      ? `${own} imports nothing outside the areas (${to})`
      : undefined;
  }
  // Tests, benches and scripts are outside the areas and may import any of them.
  if (own === undefined) return undefined;
  if (own === target) return moduleProblem(own, from, to);
  const allowed = /** @type {Record<string, readonly string[]>} */ (ALLOWED)[own] ?? [];
  if (allowed.includes(target) || allowed.includes(to)) return undefined;
  return `${own} must not import ${to}: it may import ${['itself', ...allowed].join(', ')}`;
}

/** @param {string} area @param {string} from @param {string} to both in this area */
function moduleProblem(area, from, to) {
  const modules = MODULES[area];
  const own = moduleOf(area, from);
  const target = moduleOf(area, to);
  if (modules === undefined || own === target || own === undefined) return undefined;
  const allowed = modules[own];
  if (allowed === undefined) return `${area}/${own} is not in the table of modules of ${area}`;
  if (target !== undefined && allowed.includes(target)) return undefined;
  return `${area}/${own} must not import ${to}: it may import ${['itself', ...allowed].join(', ')}`;
}

/** @param {string} area @param {string} path in it; undefined for a file directly in the area */
function moduleOf(area, path) {
  const [first, ...rest] = path.slice(area.length + 1).split('/');
  return rest.length === 0 ? undefined : first;
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
