import { describe, expect, test, vi } from 'vitest';
import { inheritedDescriptors } from '../../../supervisor/daemon/descriptors.ts';
import { HomeWatch } from '../../../supervisor/daemon/home-watch.ts';

describe('descriptors of the starter', () => {
  test('files, sockets and half pipes are its; queues, /dev/null and whole pipes are Node’s', () => {
    const open = [
      { fd: 0, target: 'pipe:[1]' },
      { fd: 2, target: '/dev/pts/0' },
      { fd: 3, target: 'anon_inode:[eventpoll]' },
      { fd: 5, target: 'pipe:[7]' },
      { fd: 6, target: 'pipe:[7]' },
      { fd: 7, target: '/dev/null' },
      { fd: 9, target: '/etc/passwd' },
      { fd: 12, target: 'socket:[33]' },
      { fd: 200, target: 'pipe:[1]' },
      { fd: 201, target: 'pipe:[9]' },
    ];
    expect(inheritedDescriptors(open)).toEqual([9, 12, 201]);
  });
});

describe('the watch over the home', () => {
  test('tells once, and only when the home was missing twice in a row', () => {
    vi.useFakeTimers();
    let there = true;
    const gone = vi.fn();
    const watch = new HomeWatch({ stillThere: () => there }, gone, 2000);
    vi.advanceTimersByTime(6000);
    there = false;
    vi.advanceTimersByTime(2000);
    there = true;
    vi.advanceTimersByTime(2000);
    expect(gone).not.toHaveBeenCalled();
    there = false;
    vi.advanceTimersByTime(20_000);
    expect(gone).toHaveBeenCalledTimes(1);
    watch.close();
    vi.useRealTimers();
  });
});
