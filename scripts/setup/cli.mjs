// The product's own command line, as scripts use it.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { node24 } from './node.mjs';
import { ROOT, SetupError, homeDirectory } from './project.mjs';

const PROGRAM = join(ROOT, 'scripts/holdfast.cjs');

/** @param {string[]} args @returns {Promise<string>} what it printed */
export function holdfast(args) {
  return new Promise((resolve, reject) => {
    const child = spawn(node24(), [PROGRAM, ...args], { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.setEncoding('utf8').on('data', (chunk) => (out += chunk));
    child.stderr.setEncoding('utf8').on('data', (chunk) => (err += chunk));
    child.on('error', reject);
    child.on('close', (code, signal) => {
      if (code === 0) resolve(out.trim());
      else
        reject(
          new SetupError(
            `holdfast ${args.join(' ')} failed (${code ?? signal}): ${err.trim()}`,
            `The supervisor's log is ${join(homeDirectory(), 'logs/supervisor.log')}`,
          ),
        );
    });
  });
}

/** @param {string[]} args */
export async function holdfastJson(args) {
  return JSON.parse(await holdfast([...args, '--json']));
}
