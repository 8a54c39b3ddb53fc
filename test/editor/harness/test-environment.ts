/**
 * What keeps a test repeatable. Workspace Trust stays as VS Code has it: on.
 * The prompt at start is a modal dialog that nobody here would answer; a folder is then simply not trusted.
 */
export const TEST_SETTINGS = {
  'workbench.startupEditor': 'none',
  'workbench.enableExperiments': false,
  'workbench.tips.enabled': false,
  'workbench.secondarySideBar.defaultVisibility': 'hidden',
  'security.workspace.trust.startupPrompt': 'never',
  'security.workspace.trust.banner': 'never',
  'telemetry.telemetryLevel': 'off',
  'update.mode': 'none',
  'extensions.autoUpdate': false,
  'extensions.autoCheckUpdates': false,
  'extensions.ignoreRecommendations': true,
  'files.autoSave': 'off',
  'chat.disableAIFeatures': true,
  'git.openRepositoryInParentFolders': 'never',
  'typescript.disableAutomaticTypeAcquisition': true,
  'window.confirmBeforeClose': 'never',
  // Nothing moves by itself: a picture is the same whenever it is taken, and the processor is left to the work.
  'workbench.reduceMotion': 'on',
  'editor.cursorBlinking': 'solid',
  // Rows of text in the page instead of a picture of them.
  'terminal.integrated.gpuAcceleration': 'off',
};

/** What VS Code finds in its environment: ours, and every place to write in lies in its folder. */
export function testEnvironment(folder: string, more: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(
    ([name]) =>
      !/^(VSCODE_|ELECTRON_|VITEST|npm_|NODE_OPTIONS$|NODE_ENV$|PORT$|PASSWORD$|TEST$|XDG_(?!RUNTIME_DIR|SESSION))/.test(
        name,
      ),
  );
  return {
    ...Object.fromEntries(inherited),
    XDG_CONFIG_HOME: folder,
    XDG_DATA_HOME: folder,
    XDG_CACHE_HOME: folder,
    TMPDIR: folder,
    EXTENSIONS_GALLERY: '{"serviceUrl":""}',
    ...more,
  };
}
