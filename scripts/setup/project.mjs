// Where things stand: the repository, the home of the installation, the log of the set-up.
import { mkdirSync, readFileSync, renameSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const LOG_LIMIT = 4 * 1024 * 1024;

// Not import.meta.dirname: a Node too old to run us must still be able to say so.
export const ROOT = resolve(fileURLToPath(new URL('../..', import.meta.url)));

/** The directory that holds everything of one installation; two of them never see each other. */
export function homeDirectory() {
  const home = process.env['HOLDFAST_HOME'];
  return home === undefined || home === '' ? join(homedir(), '.holdfast') : resolve(home);
}

/** The log that every step of the set-up appends to. */
export function setupLog() {
  const logs = join(homeDirectory(), 'logs');
  mkdirSync(logs, { recursive: true, mode: 0o700 });
  const path = join(logs, 'setup.log');
  if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) > LOG_LIMIT) renameSync(path, `${path}.1`);
  return path;
}

/** @returns {{ version: string, optionalDependencies: Record<string, string> }} */
export function manifest() {
  return JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
}

/** A failure that a person can mend: shown without a stack trace. */
export class SetupError extends Error {
  /** @param {string} what @param {string} next what to do about it @param {unknown} [cause] */
  constructor(what, next, cause) {
    super(what, { cause });
    this.name = 'SetupError';
    this.next = next;
  }
}

/** @param {unknown} error */
export function reasonOf(error) {
  return error instanceof Error ? error.message : String(error);
}
