import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { extension } from './extension.ts';

/** Runs `holdfast ARGS` as a person beside the editor would, on the same home, and gives what it printed. */
export function commandLine(args: readonly string[]): Promise<string> {
  const program = join(extension().extensionPath, 'scripts/holdfast.cjs');
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [program, ...args], (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(`holdfast ${args.join(' ')}: ${stderr}${stdout}`));
    });
  });
}

/** The same with `--json`. */
export async function runHoldfast(args: readonly string[]): Promise<unknown> {
  return JSON.parse(await commandLine([...args, '--json']));
}
