// Every benchmark, one after the other: npm run bench [-- --json] [-- NAME…]
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

/** What the benchmarks are made of, not benchmarks themselves. */
const PARTS = new Set([
  'run.ts',
  'measure.ts',
  'installation.ts',
  'bare-container.ts',
  'large-tree.ts',
  'origin.ts',
  'session-containers.ts',
  'sessions.ts',
  'squid.ts',
  'editor-host.ts',
]);

const names = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const options = process.argv.slice(2).filter((argument) => argument.startsWith('-'));
const files = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith('.ts') && !PARTS.has(file))
  .filter((file) => names.length === 0 || names.includes(file.replace(/\.ts$/, '')));

let missed = 0;
for (const file of files) {
  const { status } = spawnSync(process.execPath, [join(import.meta.dirname, file), ...options], {
    stdio: 'inherit',
  });
  if (status !== 0) missed += 1;
}
process.exitCode = missed === 0 ? 0 : 1;
