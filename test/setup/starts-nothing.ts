import childProcess from 'node:child_process';
import { syncBuiltinESMExports } from 'node:module';
import { Server } from 'node:net';
import workerThreads from 'node:worker_threads';

// Set-up of the unit tier: a test that starts a process or a thread, or listens on a socket, fails. It belongs to test/processes.

function refuse(what: string) {
  return function refused(): never {
    throw new Error(`a unit test must not ${what}: move it to test/processes`);
  };
}

const processes = ['exec', 'execFile', 'execFileSync', 'execSync', 'fork', 'spawn', 'spawnSync'] as const;
for (const name of processes) Object.defineProperty(childProcess, name, { value: refuse('start a process') });
Object.defineProperty(workerThreads, 'Worker', { value: refuse('start a thread') });
Object.defineProperty(Server.prototype, 'listen', { value: refuse('listen on a socket') });
// Named imports of these modules change with them.
syncBuiltinESMExports();
