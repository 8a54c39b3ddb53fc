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
  const { processIo, runCli } = await import('./main.ts');
  const { supervisorCommand } = await import('../protocol/client/start.ts');
  return await runCli(argv, processIo(supervisorCommand(process.execPath, bundle)));
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
