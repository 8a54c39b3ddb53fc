/** The title of the contributed profile in package.nls.json: VS Code's settings name a profile by its title. */
export const SANDBOX_PROFILE = 'Agent (sandbox)';

/** Profiles that VS Code brings along or detects; all of them are shells of this machine. */
const BUILT_IN_PROFILES = {
  linux: ['bash', 'zsh', 'fish', 'tmux', 'pwsh'],
  osx: ['bash', 'zsh', 'fish', 'tmux', 'pwsh'],
  windows: ['PowerShell', 'Windows PowerShell', 'Command Prompt', 'Git Bash', 'Cygwin', 'bash (MSYS2)'],
} as const;

/**
 * Settings of a folder with which VS Code opens every new terminal of its window in the sandbox: the default profile is ours, and there is no built-in
 * one, or *Split* and `+` would open a shell of this machine under the workspace's name.
 */
export function sandboxTerminalSettings(): Record<string, unknown> {
  const settings: Record<string, unknown> = {};
  for (const [platform, names] of Object.entries(BUILT_IN_PROFILES)) {
    settings[`terminal.integrated.defaultProfile.${platform}`] = SANDBOX_PROFILE;
    settings[`terminal.integrated.profiles.${platform}`] = Object.fromEntries(
      names.map((name) => [name, null] as const),
    );
  }
  return settings;
}
