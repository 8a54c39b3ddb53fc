import { expect, test } from 'vitest';
import { observeObjects } from '../../../supervisor/engine/docker/observation.ts';
import { LABEL } from '../../../supervisor/engine/docker/labels.ts';

test('a helper container that is created, or ends, while the engine makes its list is in use', async () => {
  const names = new Set(['ends']);
  const container = (name: string) => ({
    Id: name,
    Names: [`/${name}`],
    State: 'created',
    Labels: { [LABEL.role]: 'helper' },
  });
  const objects = await observeObjects(
    {
      list: () => {
        names.add('begins');
        names.delete('ends');
        return Promise.resolve(['begins', 'ends', 'left'].map(container));
      },
      listVolumes: () => Promise.resolve([]),
      inspect: () => Promise.resolve(null),
    },
    () => names,
  );
  expect(objects.map(({ name }) => name)).toEqual(['left']);
});
