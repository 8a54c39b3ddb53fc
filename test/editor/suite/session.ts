import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as vscode from 'vscode';
import { commandLine } from './command-line.ts';

/** The session that the run was given, as `holdfast://…` and as the agent in it sees things. */
export const SESSION = process.env['HOLDFAST_TEST_SESSION'] ?? '';

/** What stands for the session in the URIs of the window's folder: its id, with or without that of the home. */
export const AUTHORITY = process.env['HOLDFAST_TEST_AUTHORITY'] ?? SESSION;
/** The id of the home that the window works with. */
export function homeId(): string {
  return readFileSync(join(process.env['HOLDFAST_HOME'] ?? '', 'id'), 'utf8').trim();
}

export function sessionUri(path: string): vscode.Uri {
  return vscode.Uri.from({ scheme: 'holdfast', authority: AUTHORITY, path });
}

/** Runs a shell script in the session's sandbox, as its agent could, and gives what it printed. */
export function runInSandbox(script: string): Promise<string> {
  return commandLine(['exec', SESSION, '--', 'sh', '-c', script]);
}

export async function readText(path: string): Promise<string> {
  return Buffer.from(await vscode.workspace.fs.readFile(sessionUri(path))).toString('utf8');
}

export async function writeText(path: string, text: string): Promise<void> {
  await vscode.workspace.fs.writeFile(sessionUri(path), Buffer.from(text));
}

/** The code of the FileSystemError that the work ends with; what it gave where it did not fail. */
export async function fileSystemErrorCode(work: Thenable<unknown>): Promise<string> {
  try {
    return `no failure but ${JSON.stringify(await work)}`;
  } catch (error) {
    if (error instanceof vscode.FileSystemError) return error.code;
    throw error;
  }
}
