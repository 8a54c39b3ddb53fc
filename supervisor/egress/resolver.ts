import { lookup, Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';

/** Resolves a name to addresses as the supervisor's machine does. Rejects if there are none. */
export type ResolveName = (name: string) => Promise<readonly string[]>;

const TIMEOUT_MS = 3000;
const TRIES = 2;
/** Maximum concurrent lookups: the system resolver uses threads that file access needs too. */
const AT_ONCE = 8;

/** `HOLDFAST_DNS=ADDRESS[:PORT]` selects a name server; otherwise the system resolver is used. */
export function nameResolver(environment: NodeJS.ProcessEnv): ResolveName {
  const server = environment['HOLDFAST_DNS'];
  return coalesced(limited(server === undefined || server === '' ? bySystem : byServer(server)));
}

async function bySystem(name: string): Promise<readonly string[]> {
  const found = await lookup(name, { all: true, order: 'ipv4first' });
  return found.map(({ address }) => address);
}

function byServer(server: string): ResolveName {
  const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES });
  resolver.setServers([server]);
  return async (name) => {
    const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
    const found = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
    const failed = answers.find((answer) => answer.status === 'rejected');
    if (found.length === 0 && failed !== undefined) throw failed.reason;
    return found.filter((address) => isIP(address) !== 0);
  };
}

function limited(resolve: ResolveName): ResolveName {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (name) => {
    if (running >= AT_ONCE) await new Promise<void>((go) => waiting.push(go));
    running += 1;
    try {
      return await resolve(name);
    } finally {
      running -= 1;
      waiting.shift()?.();
    }
  };
}

/** A web page resolves one name many times at once: concurrent lookups share one result, which is not cached. */
function coalesced(resolve: ResolveName): ResolveName {
  const pending = new Map<string, Promise<readonly string[]>>();
  return (name) => {
    const current = pending.get(name);
    if (current !== undefined) return current;
    const answer = resolve(name).finally(() => pending.delete(name));
    pending.set(name, answer);
    return answer;
  };
}
