import { describe, expect, test, vi } from 'vitest';
import { inheritedDescriptors, suspectedDescriptors } from '../../../supervisor/daemon/descriptors.ts';
import { HomeWatch } from '../../../supervisor/daemon/home-watch.ts';

describe('descriptors of the process that started us', () => {
  const open = [
    { fd: 0, target: 'pipe:[1]' },
    { fd: 2, target: '/dev/pts/0' },
    { fd: 3, target: 'anon_inode:[eventpoll]' },
    { fd: 5, target: 'pipe:[7]' },
    { fd: 6, target: 'pipe:[7]' },
    { fd: 7, target: '/dev/null' },
    { fd: 8, target: '/etc/ssl/certs/ca-certificates.crt' },
    { fd: 9, target: '/home/ada/build.lock' },
    { fd: 12, target: 'socket:[33]' },
    { fd: 200, target: 'pipe:[1]' },
    { fd: 201, target: 'pipe:[9]' },
    { fd: 202, target: '/h/supervisor.lock' },
  ];

  test('may be files, sockets and single pipe ends; queues, /dev/null, whole pipes and certificates are Node’s', () => {
    expect(suspectedDescriptors(open).map(({ fd }) => fd)).toEqual([9, 12, 201, 202]);
  });

  test('are closed later, unless their number was reused or they are files of the home', () => {
    const later = open.map((one) => (one.fd === 12 ? { fd: 12, target: '/h/holdfast.db' } : one));
    expect(inheritedDescriptors(suspectedDescriptors(open), later, '/h')).toEqual([9, 201]);
  });
});

describe('the watch of the home', () => {
  test('reports once, and only when the home was missing twice in a row', () => {
    vi.useFakeTimers();
    let there = true;
    const gone = vi.fn();
    const watch = new HomeWatch({ isPresent: () => there }, gone, 2000);
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
