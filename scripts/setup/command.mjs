// Runs a program with everything that it says going into the log of the set-up.
import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, statSync, writeSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { ROOT, SetupError, setupLog } from './project.mjs';

/**
 * @param {string} program @param {string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, cwd?: string, missing?: string, next?: string }} [options] missing: what there is not when it fails; next:
 * what a person should do then
 */
export async function run(
  program,
  args,
  { env = process.env, cwd = ROOT, missing, next = 'See the log' } = {},
) {
  const path = setupLog();
  const log = openSync(path, 'a', 0o600);
  try {
    writeSync(log, `\n${new Date().toISOString()} $ ${[program, ...args].join(' ')}\n`);
    const from = statSync(path).size;
    const code = await new Promise((resolve, reject) => {
      const child = spawn(program, args, { cwd, env, stdio: ['ignore', log, log] });
      child.on('error', reject);
      child.on('close', (status, signal) => resolve(status ?? signal));
    });
    if (code !== 0) {
      throw new SetupError(
        `${missing === undefined ? '' : `${missing} is missing: `}${program} ${args[0] ?? ''} failed (${code}): ${lastWords(path, from)}`,
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

/** What it said last; npm says it earlier, and then much else. @param {string} path @param {number} from where its output begins in the log */
function lastWords(path, from) {
  const lines = readFileSync(path).subarray(from).toString('utf8').trimEnd().split('\n');
  const ofNpm = lines.find((line) => /^npm error .*(failed, reason|No matching version|404)/.test(line));
  return (ofNpm ?? lines.at(-1) ?? '').replace(/^npm error /, '');
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
