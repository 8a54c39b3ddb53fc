import { EXIT } from '../failure.ts';
import type { Registry } from '../registry.ts';

export function registerConnect(registry: Registry): void {
  const command = registry.command(registry.root, {
    usage: 'connect',
    description: 'connect standard input and output to the supervisor (for `ssh HOST holdfast connect`)',
    withoutJson: true,
  });
  registry.setAction(command, async (context) => {
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
