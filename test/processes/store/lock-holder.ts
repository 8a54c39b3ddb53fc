// A separate program that holds the lock of a home until it is killed: node lock-holder.ts HOME
import { Home } from '../../../supervisor/store/home.ts';
import { HomeLock } from '../../../supervisor/store/lock.ts';

HomeLock.acquire(Home.open(process.argv[2] ?? ''), { waitMs: 0 });
console.log('locked');
setInterval(() => undefined, 60_000);
