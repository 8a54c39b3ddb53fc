import { expect, test } from 'vitest';
import { Emitter } from '../../../supervisor/base/emitter.ts';
import { Hook } from '../../../supervisor/base/hook.ts';

test('listeners hear an event in the order in which they were added', () => {
  const emitter = new Emitter<string>();
  const heard: string[] = [];
  emitter.on((value) => heard.push(`first ${value}`));
  emitter.on((value) => heard.push(`second ${value}`));
  emitter.emit('event');
  expect(heard).toEqual(['first event', 'second event']);
});

test('the error of a listener is the emitter’s, and ends the event', () => {
  const emitter = new Emitter<string>();
  const heard: string[] = [];
  emitter.on(() => {
    throw new Error('full');
  });
  emitter.on((value) => heard.push(value));
  expect(() => emitter.emit('event')).toThrow('full');
  expect(heard).toEqual([]);
});

test('a step of a hook begins when the one before it has ended, and a failure ends the hook', async () => {
  const hook = new Hook<string>();
  const done: string[] = [];
  hook.add(async () => {
    await new Promise((resolve) => setImmediate(resolve));
    done.push('first');
  });
  hook.add(() => {
    done.push('second');
    return Promise.reject(new Error('cut off'));
  });
  hook.add(async () => void done.push('third'));
  await expect(hook.run('session')).rejects.toThrow('cut off');
  expect(done).toEqual(['first', 'second']);
});
