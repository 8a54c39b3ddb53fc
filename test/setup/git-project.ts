import { execFileSync } from 'node:child_process';

/** Runs git in a folder, and returns what it prints, without the last line end. */
export type GitIn = (...args: string[]) => string;

/** Makes a folder the repository of a person: one commit, `first`, has everything in it. */
export function commitProject(folder: string): GitIn {
  const git: GitIn = (...args) => execFileSync('git', args, { cwd: folder, encoding: 'utf8' }).trim();
  git('init', '-q', '-b', 'main');
  git('config', 'user.name', 'A');
  git('config', 'user.email', 'a@example.org');
  git('add', '.');
  git('commit', '-q', '-m', 'first');
  return git;
}
