import { FileDecoration } from 'vscode';
import type { FileDecorationProvider, Uri } from 'vscode';
import { workspaceNameOf } from './configuration-paths.ts';
import { SCHEME, SNAPSHOT_SCHEME, baseName } from './location.ts';

/** Adds a tooltip to marked names: the real name, and why it is marked. */
export class ConfigurationDecorations implements FileDecorationProvider {
  provideFileDecoration({ scheme, path }: Uri): FileDecoration | undefined {
    if (scheme !== SCHEME && scheme !== SNAPSHOT_SCHEME) return undefined;
    const name = workspaceNameOf(baseName(path));
    if (name === undefined) return undefined;
    return new FileDecoration(
      undefined,
      `Named ${name} in the workspace. Marked so that VS Code does not use it as configuration`,
    );
  }
}
