import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { credentialsOf } from '../../../protocol/credentials.ts';
import { ByteSearch } from '../../../supervisor/egress/credentials/byte-search.ts';
import { EchoGuard, EchoGuards } from '../../../supervisor/egress/credentials/echo-guard.ts';
import { encodedForms } from '../../../supervisor/egress/credentials/encodings.ts';
import { CredentialEndpoint } from '../../../supervisor/egress/credentials/endpoint.ts';
import { LocalProxy } from '../../egress-harness/local-proxy.ts';
import { EgressEventAggregator } from '../../../supervisor/egress/event-aggregator.ts';
import { type Dice, diceFrom, fuzzedRequest } from '../../egress-harness/fuzz-requests.ts';
import { cutUp, talk } from '../../egress-harness/tunnel-talk.ts';
import { SOAK } from '../../setup/run-length.ts';

const SEED = Number(process.env['HOLDFAST_SEED'] ?? 20_260_101);
const REQUESTS = SOAK ? 1_000_000 : 300;
const SEARCHES = SOAK ? 1_000_000 : 1500;
const SOAK_MS = 60 * 60_000;
const SECRET = 'sk-fuzzed-0123456789';

/** A request in the form that the endpoint takes, or in one of those that it must not. */
function endpointRequest(dice: Dice): string {
  const text = fuzzedRequest(dice);
  if (dice(4) === 0) return text;
  return text.replace(
    /^(\S*) \S*/,
    (_all, method: string) => `${method === 'CONNECT' ? 'GET' : method} /v1?a=b`,
  );
}

test(
  `${REQUESTS} requests are answered or cut off, and nothing of them or of the key is in an answer`,
  async () => {
    const dice = diceFrom(SEED);
    const failures: unknown[] = [];
    const note = (...args: unknown[]): void => void failures.push(args);
    const log = { debug: note, info: note, warn: note, error: note, child: () => log };
    const asked = new Set<string>();
    const [credential] = credentialsOf({
      credentials: [
        { host: 'api.test', secret: 'KEY', as: 'bearer', limits: { requests: 1_000_000, concurrent: 1000 } },
      ],
    });
    if (credential === undefined) throw new Error('there is no credential');
    const endpoint = new CredentialEndpoint({
      sessionId: 'ses-aaaaaaaaaaaaaaaa',
      credential,
      proxy: new LocalProxy(),
      rules: () => [],
      resolve: (name) => {
        asked.add(name);
        return Promise.reject(Object.assign(new Error('not found'), { code: 'ENOTFOUND' }));
      },
      secret: () => ({ value: Buffer.from(SECRET), identity: 'KEY' }),
      guards: new EchoGuards(),
      aggregator: new EgressEventAggregator({ record: () => undefined, now: () => 1 }),
      log,
      now: () => 1,
    });
    const counts = new Map<string, number>();
    for (let done = 0; done < REQUESTS; done += 50) {
      const batch = Array.from({ length: 50 }, () => endpointRequest(dice));
      await Promise.all(
        batch.map(async (text) => {
          const answer = await talk(endpoint, cutUp(Buffer.from(text, 'latin1'), dice));
          const status =
            /^HTTP\/1\.1 (\d{3}) [^\r\n]*\r\n/.exec(answer)?.[1] ?? (answer === '' ? 'cut off' : 'odd');
          if (!['100', '400', '403', '405', '417', '429', '431', '502', 'cut off'].includes(status))
            throw new Error(`${JSON.stringify(text)} was answered with ${JSON.stringify(answer)}`);
          if (answer.includes(SECRET)) throw new Error(`${JSON.stringify(text)} was given the key`);
          const strange = answer
            .split(/\r\n\r\n/)
            .filter((part) => part.startsWith('HTTP/1.1'))
            .flatMap((head) => head.split('\r\n').slice(1))
            .filter(
              (line) =>
                !/^(Content-Type|Content-Length|Connection|X-Holdfast-Egress|Retry-After|Date): [\x20-\x7e]+$/.test(
                  line,
                ),
            );
          if (strange.length > 0)
            throw new Error(`${JSON.stringify(text)} left ${JSON.stringify(strange)} in the answer`);
          counts.set(status, (counts.get(status) ?? 0) + 1);
        }),
      );
    }
    endpoint.close();
    expect(failures).toEqual([]);
    // Whatever the requests name, only the credential's host is looked up.
    expect([...asked]).toEqual(['api.test']);
    for (const status of ['400', '502'])
      expect(counts.get(status) ?? 0, status).toBeGreaterThan(REQUESTS / 50);
  },
  SOAK_MS,
);

test(
  `${SEARCHES} searches find what a plain one finds, in whatever pieces`,
  () => {
    const dice = diceFrom(SEED + 1);
    const word = (length: number): Buffer => Buffer.from(Array.from({ length }, () => 97 + dice(2)));
    let found = 0;
    for (let at = 0; at < SEARCHES; at += 1) {
      const patterns = Array.from({ length: 1 + dice(3) }, () => word(1 + dice(6)));
      const text = word(dice(12));
      const search = new ByteSearch(patterns);
      const expected = patterns.some((pattern) => text.includes(pattern));
      const guard = new EchoGuard(search);
      const passed: Buffer[] = [];
      let cut = false;
      for (let from = 0; from < text.length && !cut;) {
        const size = 1 + dice(4);
        const safe = guard.push(text.subarray(from, from + size));
        from += size;
        if (safe === null) cut = true;
        else {
          passed.push(Buffer.from(safe));
          // Held back is what may become a pattern, and no more.
          const read = text.subarray(0, from).toString();
          const kept = longestBeginning(patterns.map(String), read);
          const went = Buffer.concat(passed).toString();
          if (went !== read.slice(0, read.length - kept))
            throw new Error(`${went} went of ${read}: ${JSON.stringify(patterns.map(String))}`);
        }
      }
      if (!cut) passed.push(guard.end());
      const seen = Buffer.concat(passed);
      const context = JSON.stringify({ patterns: patterns.map(String), text: text.toString() });
      if (cut !== expected) throw new Error(`found ${cut}: ${context}`);
      if (!cut && !seen.equals(text)) throw new Error(`changed to ${seen.toString()}: ${context}`);
      if (patterns.some((pattern) => seen.includes(pattern))) throw new Error(`given away: ${context}`);
      if (cut) found += 1;
    }
    expect(found).toBeGreaterThan(SEARCHES / 10);
    expect(found).toBeLessThan(SEARCHES);
  },
  SOAK_MS,
);

/** Length of the longest end of `text` that begins one of these words. */
function longestBeginning(words: readonly string[], text: string): number {
  for (let length = text.length; length > 0; length -= 1)
    if (words.some((word) => word.startsWith(text.slice(-length)))) return length;
  return 0;
}

test('random secrets of all lengths are found in each of their forms, between other bytes', () => {
  // The lengths at which the forms of a secret differ are short.
  for (let length = 8; length <= 300; length += SOAK || length < 40 ? 1 : 7) {
    const secret = Buffer.from(randomBytes(length).toString('base64').slice(0, length));
    const search = new ByteSearch(encodedForms(secret));
    const text = secret.toString();
    const forms = [
      text,
      secret.toString('hex'),
      encodeURIComponent(text),
      JSON.stringify(text),
      ...[0, 1, 2].map((before) => Buffer.concat([Buffer.alloc(before, 'x'), secret]).toString('base64')),
      Buffer.from(`user:${text}`).toString('base64url'),
    ];
    for (const form of forms)
      expect(search.read(Buffer.from(`before ${form} after`), 0), `${length}: ${form}`).toBe(-1);
    // An automaton has a bounded size, however long the secret.
    expect(search.tableBytes).toBeLessThan(4 * 2 ** 20);
  }
});
