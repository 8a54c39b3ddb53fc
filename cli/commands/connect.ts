import { dirname } from 'node:path';
import { Option } from 'commander';
import type { Context } from '../context.ts';
import { EXIT } from '../failure.ts';
import type { Registry } from '../registry.ts';

export function registerConnect(registry: Registry): void {
  const command = registry.command(registry.root, {
    usage: 'connect',
    description: 'connect standard input and output to the supervisor (for `ssh HOST holdfast connect`)',
    withoutJson: true,
  });
  command.addOption(
    new Option('--streams', 'many connections over one; what `--host` uses on the other machine').hideHelp(),
  );
  registry.setAction(command, async (context, options: { streams?: boolean }) => {
    if (options.streams === true) return serveStreams(context);
    const { dialSupervisor } = await import('../../protocol/client/connect.ts');
    const { bridgeStdio } = await import('../../protocol/client/bridge.ts');
    // Starts the supervisor if needed, and replaces an older one. The client on stdin then says its own hello.
    await context.client().peer();
    const socket = await dialSupervisor(context.home);
    context.client().close();
    const { stdin, stdout } = context.io;
    const stop = context.handleInterrupts(() => socket.destroy());
    try {
      await bridgeStdio(socket, stdin, stdout);
      return EXIT.done;
    } finally {
      stop();
      socket.destroy();
    }
  });
}

/** The end on the other machine of what `--host` connects to. */
async function serveStreams(context: Context): Promise<number> {
  const { serveFarEnd } = await import('../../hosts/far/far-end.ts');
  const { StreamPair } = await import('../../hosts/base/stream-pair.ts');
  const { stdin, stdout, supervisorCommand } = context.io;
  await serveFarEnd(new StreamPair(stdin, stdout), {
    home: context.home,
    command: supervisorCommand,
    program: dirname(import.meta.filename),
  });
  return EXIT.done;
}
