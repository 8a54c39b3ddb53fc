import { HoldfastError } from '../protocol/errors.ts';

/** Built as one file for the command line and the supervisor: each loads only its own half. */
async function main(argv: readonly string[]): Promise<number> {
  const [group, command] = argv;
  // The file that runs; in a bundle it is this one.
  const bundle = import.meta.filename;
  if (group === 'supervisor' && command === 'run') {
    const { runSupervisor } = await import('../supervisor/daemon/run.ts');
    return await runSupervisor(bundle);
  }
  if (group === 'host-connector') return await runHostConnector(bundle, argv.slice(1));
  if (group === 'host-askpass') {
    const [, home = '', host = '', build = '', question = ''] = argv;
    const { runAskpass } = await import('../hosts/connector/askpass.ts');
    return await runAskpass(home, host, build, question, process.env);
  }
  const { processIo, runCli } = await import('./main.ts');
  const { supervisorCommand } = await import('../protocol/client/start.ts');
  return await runCli(
    argv,
    processIo({
      supervisorCommand: supervisorCommand(process.execPath, bundle),
      connectorCommand: [process.execPath, bundle, 'host-connector'],
    }),
  );
}

/** Owns the ssh connection to a host. Clients start it. */
async function runHostConnector(bundle: string, [host = '', home = '']: readonly string[]): Promise<number> {
  const { runConnector } = await import('../hosts/connector/run-connector.ts');
  return await runConnector({
    home,
    host,
    bundle,
    build: __BUILD_ID__,
    nodeVersion: __NODE_VERSION__,
    environment: process.env,
  });
}

function failed(error: unknown): number {
  const failure = HoldfastError.from(error, 'The program failed');
  process.stderr.write(`error ${failure.code}: ${failure.sentence}\n`);
  return 1;
}

if (Number(process.versions.node.split('.')[0]) < 24) {
  process.stderr.write(
    `error not_supported: holdfast needs Node 24 or newer and this is ${process.versions.node}; start it with a newer one\n`,
  );
  process.exitCode = 1;
} else {
  void main(process.argv.slice(2))
    .catch(failed)
    // Standard input may still be open and would keep the process alive.
    .then((code) => process.exit(code));
}
