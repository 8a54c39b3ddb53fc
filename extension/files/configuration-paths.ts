import { WORKSPACE } from '../../protocol/paths.ts';

/**
 * Names that VS Code, a built-in extension, or a widespread coding agent inside VS Code reads as configuration, at the
 * root of a folder or anywhere below it. An agent may write anything under these names. So the editor never finds a
 * workspace's file under one of them, but under a marked name: `.vscode (agent)` for `.vscode`.
 */
export const CONFIGURATION_NAMES = {
  '.vscode': 'settings, tasks, launch configurations, MCP servers, snippets, recommended extensions',
  '.mcp.json': 'MCP servers, which are programs',
  '.devcontainer': 'development containers, whose `initializeCommand` runs on the host',
  '.devcontainer.json': 'the same, as a single file',
  '.github': 'agents, hooks, prompts, skills and plugin settings of Copilot',
  '.claude': 'settings with hooks, agents, skills',
  '.claude-plugin': 'a plugin with hooks and MCP servers',
  '.plugin': 'a plugin with hooks and MCP servers',
  '.copilot': 'agents, hooks, MCP servers',
  '.agents': 'skills',
  '.codex': 'configuration with hooks and MCP servers',
  '.cursor': 'MCP servers, rules',
  '.gemini': 'settings with MCP servers',
  '.windsurf': 'rules and workflows',
  '.roo': 'MCP servers, rules',
  '.kilocode': 'MCP servers, rules',
  '.continue': 'MCP servers, rules',
  '.amazonq': 'MCP servers, rules',
  '.kiro': 'MCP servers, hooks',
} as const;

/** Suffixes of file names, with what VS Code does with such a file anywhere. */
export const CONFIGURATION_SUFFIXES = {
  '.code-workspace': 'opens as a workspace with settings and tasks of its own',
  '.code-snippets': 'snippets',
  '.code-profile': 'a profile with settings and extensions',
  '.vsix': 'installs as an extension',
} as const;

/**
 * Marks a configuration name. A file whose real name is a marked one gets a second mark, so that real names and display
 * names map one to one.
 */
export const MARK_SUFFIX = ' (agent)';

const NAMES: ReadonlySet<string> = new Set(Object.keys(CONFIGURATION_NAMES));
const SUFFIXES: readonly string[] = Object.keys(CONFIGURATION_SUFFIXES);

/**
 * Whether VS Code on any machine could read a file of this name as configuration. Some file systems ignore case,
 * Unicode compatibility forms, invisible characters, or trailing dots and spaces. Marking a name without need does no
 * harm.
 */
export function isConfigurationName(name: string): boolean {
  const folded = name
    .normalize('NFKC')
    .replace(/[\p{Default_Ignorable_Code_Point}\p{Cc}]/gu, '')
    .toLowerCase()
    .replace(/[. ]+$/, '');
  return NAMES.has(folded) || SUFFIXES.some((suffix) => folded.endsWith(suffix));
}

/** The name under which the editor shows a file of the workspace. */
export function displayName(name: string): string {
  return isConfigurationName(unmarked(name)) ? name + MARK_SUFFIX : name;
}

/** The path under which the editor shows a path of the workspace. Paths outside /workspace stay unchanged. */
export function displayPath(path: string): string {
  if (!path.startsWith(`${WORKSPACE}/`)) return path;
  return path.split('/').map(displayName).join('/');
}

/** The name in the workspace of a marked display name; undefined where the name is not marked. */
export function workspaceNameOf(displayed: string): string | undefined {
  return displayed.endsWith(MARK_SUFFIX) && isConfigurationName(unmarked(displayed))
    ? displayed.slice(0, -MARK_SUFFIX.length)
    : undefined;
}

/** Marks the configuration names in a path. Names that are marked already stay unchanged. */
export function markPath(path: string): string {
  return path
    .split('/')
    .map((name) => (isConfigurationName(name) ? name + MARK_SUFFIX : name))
    .join('/');
}

export type ParsedDisplayPath =
  | { readonly kind: 'path'; readonly path: string }
  /** The path has an unmarked configuration name, so the editor must find nothing there. */
  | { readonly kind: 'configuration'; readonly name: string };

/** The inverse of `displayPath`. */
export function parseDisplayPath(displayed: string): ParsedDisplayPath {
  const names: string[] = [];
  for (const name of displayed.split('/')) {
    if (isConfigurationName(name)) return { kind: 'configuration', name };
    names.push(workspaceNameOf(name) ?? name);
  }
  return { kind: 'path', path: names.join('/') };
}

function unmarked(name: string): string {
  let bare = name;
  while (bare.endsWith(MARK_SUFFIX)) bare = bare.slice(0, -MARK_SUFFIX.length);
  return bare;
}
