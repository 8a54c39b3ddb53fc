import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { extension } from './extension.ts';

/** Runs `holdfast ARGS --json` as a person beside the editor would, on the same home. */
export function holdfast(args: readonly string[]): Promise<unknown> {
  const program = join(extension().extensionPath, 'scripts/holdfast.cjs');
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [program, ...args, '--json'], (error, stdout, stderr) => {
      if (error === null) resolve(JSON.parse(stdout));
      else reject(new Error(`holdfast ${args.join(' ')}: ${stderr}`));
    });
  });
}
