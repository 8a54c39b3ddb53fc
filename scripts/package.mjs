// npm run package: dist/holdfast.vsix, the extension with the supervisor and all that its sandboxes need inside.
import { statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { buildProgram, ensureDependencies } from './setup/dependencies.mjs';
import { reportFailure } from './setup/failure.mjs';
import { packageExtension } from './setup/package.mjs';
import { Progress } from './setup/progress.mjs';
import { ROOT } from './setup/project.mjs';

const progress = new Progress();
try {
  await progress.step('Node 24 and dependencies', ensureDependencies, (installed) =>
    installed ? 'installed' : 'there',
  );
  await progress.step('build', buildProgram);
  await progress.step(
    'package',
    () => packageExtension(join(ROOT, 'dist/holdfast.vsix')),
    (path) => `${relative(ROOT, path)}, ${(statSync(path).size / 2 ** 20).toFixed(1)} MB`,
  );
} catch (error) {
  reportFailure(progress, error);
}
