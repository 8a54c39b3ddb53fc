import type { Registry } from '../registry.ts';
import { clientInfo, versionLine } from '../version.ts';

export function registerVersion(registry: Registry): void {
  const command = registry.command(registry.root, { usage: 'version', description: 'print the version' });
  registry.setAction(command, async (context) => {
    const { version, build, builtAt } = clientInfo();
    if (context.json) {
      await context.printJson({
        version,
        build,
        builtAt: new Date(builtAt).toISOString(),
        node: process.versions.node,
      });
    } else await context.print(versionLine());
    return undefined;
  });
}
