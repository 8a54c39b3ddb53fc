/** The title of our terminal profile in package.nls.json. VS Code's settings refer to a profile by its title. */
export const SANDBOX_PROFILE = 'Agent (sandbox)';

/** Profiles that VS Code has built in or detects. All of them are shells of this machine. */
const BUILT_IN_PROFILES = {
  linux: ['bash', 'zsh', 'fish', 'tmux', 'pwsh'],
  osx: ['bash', 'zsh', 'fish', 'tmux', 'pwsh'],
  windows: ['PowerShell', 'Windows PowerShell', 'Command Prompt', 'Git Bash', 'Cygwin', 'bash (MSYS2)'],
} as const;

/**
 * Folder settings that open every new terminal of the window in the sandbox: our profile is the default, and the
 * built-in profiles are removed. Otherwise *Split* and `+` would open a shell of this machine under the workspace's
 * name.
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
