import { FileDecoration } from 'vscode';
import type { FileDecorationProvider, Uri } from 'vscode';
import { markedName } from './configuration-paths.ts';
import { SCHEME, SNAPSHOT_SCHEME, lastName } from './location.ts';

/** Says of a marked name what it is called in the workspace, and why it is marked. */
export class ConfigurationMarks implements FileDecorationProvider {
  provideFileDecoration({ scheme, path }: Uri): FileDecoration | undefined {
    if (scheme !== SCHEME && scheme !== SNAPSHOT_SCHEME) return undefined;
    const name = markedName(lastName(path));
    if (name === undefined) return undefined;
    return new FileDecoration(
      undefined,
      `${name} in the workspace. VS Code does not use it as configuration`,
    );
  }
}
