import { describe, expect, test } from 'vitest';
import { storageState, storageLimitError } from '../../../supervisor/workspace/storage-state.ts';

describe('the storage state of a workspace', () => {
  test.each([
    [0, 'far', 'far'],
    [89, 'far', 'far'],
    [90, 'far', 'near'],
    [100, 'near', 'near'],
    [101, 'near', 'over'],
    [86, 'near', 'near'],
    [86, 'far', 'far'],
    [84, 'over', 'far'],
  ] as const)('%i of 100 after %s is %s', (bytes, before, state) => {
    expect(storageState(bytes, 100, before)).toBe(state);
  });

  test('the error names the largest folders', () => {
    const error = storageLimitError('No', 200, 100, [{ path: '/workspace/a', bytes: 150, files: 3 }]);
    expect(error.code).toBe('storage_limit');
    expect(error.details).toEqual({
      bytes: 200,
      limit: 100,
      folders: [{ path: '/workspace/a', bytes: 150, files: 3 }],
    });
  });
});
