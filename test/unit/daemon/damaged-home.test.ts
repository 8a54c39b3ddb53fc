import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { METHODS } from '../../../protocol/methods.ts';
import { createDamagedHomeHandlers } from '../../../supervisor/daemon/damaged-home-handlers.ts';

test('with a damaged database each method fails with the damage, except those that the table says are answered', () => {
  const damage = new HoldfastError('home_damaged', 'The database cannot be used');
  const handlers = new Map<string, unknown>(
    Object.entries(
      createDamagedHomeHandlers(
        damage,
        { run: () => Promise.resolve([]) },
        { shutDownSoon: () => undefined, purge: () => ({ removed: [] }) },
      ),
    ),
  );
  for (const [name, { whenDamaged }] of Object.entries(METHODS)) {
    // The server answers `hello` itself.
    if (name === 'hello') continue;
    const handler = handlers.get(name) as (params: object) => unknown;
    const call = (): unknown => handler({});
    if (whenDamaged === 'answers') expect(call, name).not.toThrow();
    else expect(call, name).toThrow(damage);
  }
});
