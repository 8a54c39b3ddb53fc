import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createFailpoint, FAILPOINTS, parseFailpoints } from '../../../supervisor/base/failpoints.ts';

const ROOT = join(import.meta.dirname, '../../..');

describe('failpoints', () => {
  test('a failpoint without a rule does nothing', () => {
    const failpoint = createFailpoint(undefined);
    for (const name of FAILPOINTS) expect(failpoint(name)).toBeUndefined();
  });

  test('a rule acts at every hit, or at the one it names', () => {
    const failpoint = createFailpoint('stop.after-agent=error@2; pause.after-intent=error');
    expect(failpoint('stop.after-agent')).toBeUndefined();
    expect(() => failpoint('stop.after-agent')).toThrow(/on purpose at stop\.after-agent/);
    expect(failpoint('stop.after-agent')).toBeUndefined();
    expect(() => failpoint('pause.after-intent')).toThrow();
    expect(() => failpoint('pause.after-intent')).toThrow();
    expect(failpoint('start.after-intent')).toBeUndefined();
  });

  test('enospc looks like the system’s own error', () => {
    const failpoint = createFailpoint('deploy.after-copy=enospc');
    expect(() => failpoint('deploy.after-copy')).toThrow(expect.objectContaining({ code: 'ENOSPC' }));
  });

  test('delay waits', async () => {
    const failpoint = createFailpoint('turn.before-launch=delay:60');
    const started = performance.now();
    await failpoint('turn.before-launch');
    expect(performance.now() - started).toBeGreaterThan(50);
  });

  test.each([
    'create.after-inten=kill',
    'stop.after-agent',
    'stop.after-agent=explode',
    'stop.after-agent=kill@0',
    'x',
  ])('%s is refused', (text) => {
    expect(() => parseFailpoints(text)).toThrow(expect.objectContaining({ code: 'invalid_params' }));
  });

  test('kill ends the process on that line', () => {
    const program = `import { failpoint } from ${JSON.stringify(join(ROOT, 'supervisor/base/failpoints.ts'))};
      process.stdout.write('before'); await failpoint('turn.after-end'); process.stdout.write('after');`;
    const { signal, stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
      env: { ...process.env, HOLDFAST_FAILPOINTS: 'turn.after-end=kill' },
      encoding: 'utf8',
    });
    expect([signal, stdout]).toEqual(['SIGKILL', 'before']);
  });

  test('every listed failpoint exists in the program', () => {
    const sources = readdirSync(join(ROOT, 'supervisor'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && name !== 'failpoints.ts')
      .map((name) => readFileSync(join(ROOT, 'supervisor', name), 'utf8'))
      .join('\n');
    const unused = FAILPOINTS.filter((name) => !sources.includes(`failpoint('${name}')`));
    expect(unused).toEqual([]);
  });
});
