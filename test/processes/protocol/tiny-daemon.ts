// A supervisor in little, for tests of how clients find, start and replace one: the real home, lock, socket and server.
// Arguments: version, builtAt, behaviour (normal | slow | crash | hang | stays).
import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { HoldfastError } from '../../../protocol/errors.ts';
import { homeFromEnvironment } from '../../../protocol/home.ts';
import { withBytes } from '../../../protocol/wire/shapes.ts';
import { detachStdio } from '../../../supervisor/daemon/descriptors.ts';
import { RpcServer } from '../../../supervisor/rpc/server.ts';
import type { HandlerTable } from '../../../supervisor/rpc/handler-table.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { HomeLock } from '../../../supervisor/store/lock.ts';

const [version = '1.0.0', builtAt = '0', behaviour = 'normal'] = process.argv.slice(2);
process.umask(0o077);
const home = Home.open(homeFromEnvironment(process.env));

function log(error: HoldfastError): void {
  const { code, message, why } = error;
  const line = {
    time: new Date().toISOString(),
    level: 'error',
    module: 'daemon',
    message: 'it could not start',
    error: { code, message, why },
  };
  appendFileSync(home.logFile, `${JSON.stringify(line)}\n`, { mode: 0o600 });
}

async function main(): Promise<void> {
  if (behaviour === 'crash') throw new HoldfastError('home_newer', 'The home is newer', { why: 'schema 9' });
  writeFileSync(join(home.runs, 'pid'), String(process.pid));
  if (behaviour === 'hang') return new Promise(() => setTimeout(() => process.exit(0), 30_000));
  const lock = HomeLock.acquire(home, { waitMs: 100 });
  if (behaviour === 'slow') await new Promise((resolve) => setTimeout(resolve, 400));
  let leaving: Promise<void> | undefined;
  const leave = (): Promise<void> =>
    (leaving ??= server.close().then(() => {
      lock.release();
      process.exit(0);
    }));
  const handlers: Partial<HandlerTable> = {
    ping: () => ({}),
    // As much as may ride behind one answer.
    'turn/output': ({ offset }) =>
      withBytes({ offset, total: 4 * 2 ** 20, ended: true }, Buffer.alloc(4 * 2 ** 20, 1)),
    'turn/wait': () => new Promise(() => undefined),
    'turn/start': () => new Promise(() => undefined),
    'supervisor/handover': () => {
      if (behaviour === 'stays') return { leaving: false };
      setImmediate(() => void leave());
      return { leaving: true };
    },
  };
  detachStdio();
  const server = await RpcServer.listen({
    place: { directory: home.socketDirectory, name: 'supervisor.sock' },
    identity: {
      supervisor: {
        name: 'tiny',
        version,
        build: `${version}-${builtAt}`,
        builtAt: Number(builtAt),
        pid: process.pid,
        epoch: 1,
      },
      home: home.root,
      homeId: home.id,
      capabilities: {},
    },
    handlers: handlers as HandlerTable,
    onInternalError: (error) => log(HoldfastError.from(error)),
  });
  process.on('SIGTERM', () => void leave());
  // A test that was killed must not leave it behind.
  setTimeout(() => void leave(), 60_000);
}

main().catch((error: unknown) => {
  log(HoldfastError.from(error));
  process.exit(1);
});
