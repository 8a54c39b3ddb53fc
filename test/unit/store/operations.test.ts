import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { openDatabase } from '../../../supervisor/store/database.ts';
import { Operations } from '../../../supervisor/store/operations.ts';
import type { Intent, Operation } from '../../../supervisor/store/operations.ts';
import { thrownError, temporaryDatabase, temporaryHome } from '../../fixtures/store/temporary-home.ts';

const intent: Intent = { opId: 'op-12345678', kind: 'create', sessionId: null, data: { name: 'n' } };

function begin(operations: Operations, of: Intent = intent): Operation {
  const begun = operations.begin(of);
  if ('replay' in begun) throw new Error('it was asked before');
  return begun.operation;
}

describe('an operation', () => {
  test('survives its process with its last step', () => {
    const home = temporaryHome();
    const first = openDatabase(home);
    const operations = new Operations(first);
    const begun = begin(operations);
    expect([begun.step, begun.data]).toEqual(['begun', { name: 'n' }]);
    const stepped = operations.recordStep(begun, 'workspace', { path: '/w' });
    operations.recordStep(stepped, 'row');
    first.close();
    const [left, ...others] = new Operations(temporaryDatabase(home)).pending();
    expect(others).toEqual([]);
    expect(left).toMatchObject({
      ...begun,
      step: 'row',
      data: { name: 'n', path: '/w' },
      updatedAt: left?.updatedAt,
    });
  });

  test('repeated with one opId gives the first result', () => {
    const operations = new Operations(temporaryDatabase());
    operations.finish(begin(operations), { id: 'ses-1' });
    expect(operations.begin(intent)).toEqual({ replay: { result: { id: 'ses-1' } } });
    expect(operations.pending()).toEqual([]);
  });

  test('with the result null gives null again; without an opId it runs again', () => {
    const operations = new Operations(temporaryDatabase());
    operations.finish(begin(operations), null);
    expect(operations.begin(intent)).toEqual({ replay: { result: null } });
    const { opId: _, ...anonymous } = intent;
    const [first, second] = [begin(operations, anonymous), begin(operations, anonymous)];
    expect(first.id).not.toBe(second.id);
  });

  test('that failed fails again the same way', () => {
    const operations = new Operations(temporaryDatabase());
    const error = new HoldfastError('no_space', 'It did not fit', { why: 'w', next: 'n', details: { a: 1 } });
    operations.fail(begin(operations), error);
    const begun = operations.begin(intent);
    const replayed = 'replay' in begun && 'error' in begun.replay ? begun.replay.error : null;
    expect(replayed).toBeInstanceOf(HoldfastError);
    expect(replayed).toMatchObject({
      code: 'no_space',
      message: 'It did not fit',
      why: 'w',
      next: 'n',
      details: { a: 1 },
    });
  });

  test('that is running is not begun a second time', () => {
    const operations = new Operations(temporaryDatabase());
    begin(operations);
    expect(thrownError(() => operations.begin(intent)).code).toBe('conflict');
    expect(operations.pending()).toHaveLength(1);
  });

  test('keeps its opId from other kinds of operations', () => {
    const operations = new Operations(temporaryDatabase());
    operations.finish(begin(operations), {});
    expect(thrownError(() => operations.begin({ ...intent, kind: 'delete' })).code).toBe('invalid_params');
  });

  test('ends once', () => {
    const operations = new Operations(temporaryDatabase());
    const operation = begin(operations);
    operations.finish(operation, 1);
    expect(thrownError(() => operations.fail(operation, new Error('late'))).code).toBe('internal');
    expect(thrownError(() => operations.recordStep(operation, 'late')).code).toBe('internal');
    expect(operations.begin(intent)).toEqual({ replay: { result: 1 } });
  });

  test('whose reported failure could not be written is never resumed, and is written later', () => {
    const database = temporaryDatabase();
    const operations = new Operations(database);
    const operation = begin(operations);
    // A trigger simulates a full disk.
    database.run(
      "CREATE TRIGGER full BEFORE UPDATE ON operations BEGIN SELECT RAISE(FAIL, 'disk full'); END",
    );
    operations.abandon(operation, new HoldfastError('engine_error', 'It broke'));
    expect(operations.pending()).toEqual([]);
    expect(operations.isPending(operation)).toBe(false);
    expect(new Operations(database).isPending(operation)).toBe(true);
    database.run('DROP TRIGGER full');
    // The enclosing rollback would lose it.
    expect(() =>
      database.transaction(() => {
        operations.pending();
        throw new Error('undone');
      }),
    ).toThrow('undone');
    expect(operations.pending()).toEqual([]);
    expect(new Operations(database).pending()).toEqual([]);
    const again = operations.begin(intent);
    expect('replay' in again && 'error' in again.replay ? again.replay.error.code : null).toBe(
      'engine_error',
    );
  });

  test('is deleted seven days after its end, never before', () => {
    const operations = new Operations(temporaryDatabase());
    operations.finish(begin(operations), 1);
    begin(operations, { ...intent, opId: 'op-at-work' });
    expect(operations.prune(Date.now() + 6.9 * 86_400_000)).toBe(0);
    expect(operations.prune(Date.now() + 7.1 * 86_400_000)).toBe(1);
    expect(operations.pending()).toHaveLength(1);
    begin(operations);
  });
});
