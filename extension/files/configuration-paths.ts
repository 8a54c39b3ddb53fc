import { WORKSPACE } from '../../protocol/paths.ts';

/**
 * Names that VS Code, an extension that comes with it, or a widespread coding agent inside it takes for configuration, at the root of a folder or
 * anywhere below it. Agents write what they like under these names, so the editor never finds a workspace's file under one of them: it is
 * listed, opened and saved under a marked name: `.vscode (agent)` for `.vscode`.
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

/** Endings of file names, with what VS Code does with such a file wherever it lies. */
export const CONFIGURATION_SUFFIXES = {
  '.code-workspace': 'opens as a workspace with settings and tasks of its own',
  '.code-snippets': 'snippets',
  '.code-profile': 'a profile with settings and extensions',
  '.vsix': 'installs as an extension',
} as const;

/** Behind a name of configuration. A file whose own name ends in it has one mark more, so each name is shown in one way only. */
export const MARK_SUFFIX = ' (agent)';

const NAMES: ReadonlySet<string> = new Set(Object.keys(CONFIGURATION_NAMES));
const ENDINGS: readonly string[] = Object.keys(CONFIGURATION_SUFFIXES);

/**
 * Whether some machine that VS Code runs on could take the name for one of configuration. Letter case, compatibility forms, invisible characters
 * and dots or spaces at the end make no difference to one file system or another; a name that is marked without need costs nothing.
 */
export function isConfigurationName(name: string): boolean {
  const folded = name
    .normalize('NFKC')
    .replace(/[\p{Default_Ignorable_Code_Point}\p{Cc}]/gu, '')
    .toLowerCase()
    .replace(/[. ]+$/, '');
  return NAMES.has(folded) || ENDINGS.some((ending) => folded.endsWith(ending));
}

/** A name of the workspace as the editor shows it. */
export function displayName(name: string): string {
  return isConfigurationName(unmarked(name)) ? name + MARK_SUFFIX : name;
}

/** A path of the workspace as the editor shows it; what is not below /workspace stays as it is. */
export function displayPath(path: string): string {
  if (!path.startsWith(`${WORKSPACE}/`)) return path;
  return path.split('/').map(displayName).join('/');
}

/** The name of a file as it is in the workspace, where the editor shows it marked; else undefined. */
export function workspaceNameOf(shown: string): string | undefined {
  return shown.endsWith(MARK_SUFFIX) && isConfigurationName(unmarked(shown))
    ? shown.slice(0, -MARK_SUFFIX.length)
    : undefined;
}

/** A path with names as they are in the workspace, some of them marked already, as the editor shows it. */
export function markPath(path: string): string {
  return path
    .split('/')
    .map((name) => (isConfigurationName(name) ? name + MARK_SUFFIX : name))
    .join('/');
}

export type ParsedDisplayPath =
  | { readonly kind: 'path'; readonly path: string }
  /** A name in it is one of configuration and is not marked: the editor finds nothing there. */
  | { readonly kind: 'configuration'; readonly name: string };

/** The reverse of `shownPath`. */
export function parseDisplayPath(shown: string): ParsedDisplayPath {
  const names: string[] = [];
  for (const name of shown.split('/')) {
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
