// Runs a program with everything that it says going into the log of the set-up.
import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, statSync, writeSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { ROOT, SetupError, setupLog } from './project.mjs';

/**
 * @param {string} program @param {string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, cwd?: string, next?: string }} [options] next: what a person should do when it fails
 */
export async function run(program, args, { env = process.env, cwd = ROOT, next = 'See the log' } = {}) {
  const path = setupLog();
  const log = openSync(path, 'a', 0o600);
  try {
    writeSync(log, `\n${new Date().toISOString()} $ ${[program, ...args].join(' ')}\n`);
    const code = await new Promise((resolve, reject) => {
      const child = spawn(program, args, { cwd, env, stdio: ['ignore', log, log] });
      child.on('error', reject);
      child.on('close', (status, signal) => resolve(status ?? signal));
    });
    if (code !== 0) {
      throw new SetupError(
        `${program} ${args[0] ?? ''} failed (${code}): ${lastLine(path)}`,
        `${next}. Log: ${path}`,
      );
    }
  } catch (error) {
    if (error instanceof SetupError) throw error;
    throw new SetupError(`${program} cannot be run`, `${next}. Log: ${path}`, error);
  } finally {
    closeSync(log);
  }
}

/** @param {string} path */
function lastLine(path) {
  return readFileSync(path, 'utf8').trimEnd().split('\n').at(-1) ?? '';
}

/** @param {string} program */
export function onPath(program) {
  const places = (process.env['PATH'] ?? '').split(delimiter);
  // Daemons and package tools live where an ordinary PATH may not look.
  return [...places, '/usr/sbin', '/sbin'].map((place) => join(place, program)).find(isExecutable);
}

/** @param {string} path */
function isExecutable(path) {
  try {
    return (statSync(path).mode & 0o111) !== 0 && statSync(path).isFile();
  } catch {
    return false; // not there
  }
}
