import { stat } from 'node:fs/promises';
import { Uri, commands, window, workspace } from 'vscode';
import type { Memento, QuickPickItem } from 'vscode';
import { Git } from '../../handoff/git.ts';
import { type Repository, type RepositoryUse, openRepository } from '../../handoff/repository.ts';
import type { HandoffConnection } from '../../handoff/changes.ts';
import { recordRecovered } from '../../handoff/record.ts';
import { recoverHandoffs } from '../../handoff/undo.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { sanitize } from '../base/sanitize.ts';

/** Where handoffs of this window went, the newest first. */
const KEY = 'holdfast.handoffRepositories';
const KEPT = 5;

/** Git in a folder of the person's. It runs in the extension host, which is on the machine of the supervisor. */
export function gitIn(folder: string, signal?: AbortSignal): Git {
  return new Git(folder, process.env, signal);
}

/** The folder of a repository that the person chose; undefined where the person chose none. */
export async function chooseRepository(state: Memento, title: string): Promise<string | undefined> {
  const open = (workspace.workspaceFolders ?? [])
    .filter(({ uri }) => uri.scheme === 'file')
    .map(({ uri }) => uri.fsPath);
  const items: (QuickPickItem & { readonly folder?: string })[] = [
    ...open.map((folder) => item(folder, 'open in this window')),
    ...remembered(state)
      .filter((folder) => !open.includes(folder))
      .map((folder) => item(folder, 'used before')),
    { label: '$(folder) Choose a Folder…' },
  ];
  const picked =
    items.length === 1
      ? items[0]
      : await window.showQuickPick(items, { title, placeHolder: 'Your repository' });
  if (picked === undefined) return undefined;
  if (picked.folder !== undefined) return picked.folder;
  const chosen = await window.showOpenDialog({
    title: `${title}: your repository`,
    canSelectFiles: false,
    canSelectFolders: true,
    openLabel: 'Choose',
    defaultUri: Uri.file(process.env['HOME'] ?? '/'),
  });
  return chosen?.[0]?.fsPath;
}

/**
 * Opens the repository, takes back handoffs that were interrupted, and reports those that were complete. Errors:
 * `not_found` without git or a repository, `not_supported`, `permission_denied` in a window that is not trusted: git
 * runs programs that the repository's configuration names.
 */
export async function openChosen(
  folder: string,
  connection: HandoffConnection & { readonly home: string },
  use: RepositoryUse,
  signal?: AbortSignal,
): Promise<Repository> {
  if (!workspace.isTrusted) {
    void commands.executeCommand('workbench.trust.manage');
    throw new HoldfastError('permission_denied', 'This window does not trust its folder', {
      why: 'git runs programs that the configuration of a repository names',
      next: `trust the folder, then ${use === 'review' ? 'review' : 'hand off'} again`,
    });
  }
  if (!(await stat(folder).catch(() => null))?.isDirectory())
    throw new HoldfastError('not_found', `There is no folder ${sanitize(folder)}`);
  const git = gitIn(folder, signal);
  try {
    await git.ask(['--version']);
  } catch (error) {
    if (HoldfastError.from(error).code !== 'not_found') throw error;
    throw new HoldfastError('not_found', 'Git is not installed on this machine', {
      why: 'VS Code runs it here and found no `git` on PATH',
      next: `install git and reload the window, or ${use === 'review' ? 'choose another base' : 'hand off into a folder'}`,
      cause: error,
    });
  }
  const repository = await openRepository(git, connection.home, use);
  // What is being taken back is finished, also if the person cancels meanwhile.
  const finishing = { ...repository, git: repository.git.withoutSignal() };
  const { recovered, failed } = await recoverHandoffs(finishing);
  for (const { handoff } of recovered) {
    void window.showInformationMessage(
      sanitize(`The handoff ${handoff} was interrupted. Its changes were undone.`),
    );
  }
  for (const { handoff, why } of failed) {
    void window.showWarningMessage(
      sanitize(`The interrupted handoff ${handoff} could not be undone: ${why}`),
    );
  }
  try {
    await recordRecovered(connection, repository);
  } catch (error) {
    const { sentence } = HoldfastError.from(error);
    void window.showWarningMessage(
      sanitize(
        `An earlier handoff was made, and the history of its session does not say so: ${sentence}`,
        400,
      ),
    );
  }
  return repository;
}

export async function rememberRepository(state: Memento, folder: string): Promise<void> {
  const others = remembered(state).filter((one) => one !== folder);
  await state.update(KEY, [folder, ...others].slice(0, KEPT));
}

function remembered(state: Memento): readonly string[] {
  const stored = state.get<unknown>(KEY);
  return Array.isArray(stored) ? stored.filter((one) => typeof one === 'string') : [];
}

function item(folder: string, why: string): QuickPickItem & { readonly folder: string } {
  return { label: `$(repo) ${sanitize(folder)}`, description: why, folder };
}
