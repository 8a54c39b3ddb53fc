import { isIPv4, isIPv6 } from 'node:net';
import { domainToASCII } from 'node:url';
import { expect, test } from 'vitest';
import { parseHostPattern, formatHostPattern } from '../../../protocol/egress.ts';
import { canonicalizeHost, splitAuthority } from '../../../protocol/host-name.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { EgressRules } from '../../../supervisor/store/egress-rules.ts';
import { Profiles } from '../../../supervisor/store/profiles.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { decide, type Rule } from '../../../supervisor/egress/decide.ts';
import { EgressEventAggregator } from '../../../supervisor/egress/event-aggregator.ts';
import { LocalProxy } from '../../egress-harness/local-proxy.ts';
import { Policies } from '../../../supervisor/egress/policies.ts';
import { SessionGate } from '../../../supervisor/egress/session-gate.ts';
import { diceFrom, fuzzedHost, fuzzedRequest } from '../../egress-harness/fuzz-requests.ts';
import { cutUp, talk } from '../../egress-harness/tunnel-talk.ts';
import { sessionId, sessionRow, temporaryDatabase } from '../../fixtures/store/temporary-home.ts';
import { SOAK } from '../../setup/run-length.ts';

const SEED = Number(process.env['HOLDFAST_SEED'] ?? 20_260_101);
const HOSTS = SOAK ? 1_000_000 : 4000;
const REQUESTS = SOAK ? 1_000_000 : 500;
const SOAK_MS = 60 * 60_000;

test(
  `${HOSTS} hosts have one canonical form that all parsers agree on, or are refused`,
  () => {
    const dice = diceFrom(SEED);
    let accepted = 0;
    for (let at = 0; at < HOSTS; at += 1) {
      const text = fuzzedHost(dice);
      const found = canonicalizeHost(text);
      if ('refused' in found) continue;
      accepted += 1;
      const { host, kind } = found;
      const context = JSON.stringify({ text, host });
      if (!/^[a-z0-9_.:-]+$/.test(host)) throw new Error(`odd characters: ${context}`);
      if (JSON.stringify(canonicalizeHost(host)) !== JSON.stringify(found))
        throw new Error(`not one form: ${context}`);
      if ((kind === 'ipv4') !== isIPv4(host) || (kind === 'ipv6') !== isIPv6(host))
        throw new Error(`another kind: ${context}`);
      // Browsers and Node's fetch parse it to the same host, or refuse it.
      const url = parsed(`http://${kind === 'ipv6' ? `[${host}]` : host}/`);
      if (url !== null && url.hostname.replace(/^\[|\]$/g, '') !== host)
        throw new Error(`read in two ways: ${context}`);
      // An ASCII name only loses its capitals and its final dot.
      if (kind === 'name' && /^[\x21-\x7e]*$/.test(text) && text.toLowerCase().replace(/\.$/, '') !== host)
        throw new Error(`another name: ${context}`);
      if (kind === 'name' && !/^[\x21-\x7e]*$/.test(text) && domainToASCII(text).replace(/\.$/, '') !== host)
        throw new Error(`another name than IDNA's: ${context}`);
    }
    expect(accepted).toBeGreaterThan(HOSTS / 100);
  },
  SOAK_MS,
);

test(
  `${HOSTS} patterns survive formatting, and allow exactly what they say`,
  () => {
    const dice = diceFrom(SEED + 1);
    let matches = 0;
    for (let at = 0; at < HOSTS; at += 1) {
      const text = fuzzedHost(dice);
      const pattern = parseHostPattern(text);
      if ('refused' in pattern) continue;
      const shown = formatHostPattern(pattern);
      expect(parseHostPattern(shown)).toEqual(pattern);
      const rule: Rule = { pattern, effect: 'allow', from: 'session', id: 1 };
      for (const wanted of [pattern.host, `a.${pattern.host}`, `x${pattern.host}`, 'open.test']) {
        const canonical = canonicalizeHost(wanted);
        const port = [80, 443, 65, pattern.port ?? 8080][dice(4)] ?? 80;
        if ('refused' in canonical) continue;
        const { allowed } = decide([rule], canonical.host, port);
        // The same pattern in another notation.
        const labels = canonical.host.split('.').length - pattern.host.split('.').length;
        const below = labels > 0 && canonical.host.split('.').slice(labels).join('.') === pattern.host;
        const named = pattern.wildcard ? below : canonical.host === pattern.host;
        const through = pattern.port === null ? port === 443 || port === 80 : port === pattern.port;
        expect([shown, canonical.host, port, allowed]).toEqual([
          shown,
          canonical.host,
          port,
          named && through,
        ]);
        if (allowed) matches += 1;
      }
    }
    expect(matches).toBeGreaterThan(HOSTS / 100);
  },
  SOAK_MS,
);

test(
  `${REQUESTS} requests are answered or cut off, and no denied name is ever resolved`,
  async () => {
    const dice = diceFrom(SEED + 2);
    const { gate, asked, end } = fuzzedProxy();
    const counts = new Map<string, number>();
    for (let done = 0; done < REQUESTS; done += 50) {
      const batch = Array.from({ length: 50 }, () => {
        const text = fuzzedRequest(dice);
        return { text, pieces: cutUp(Buffer.from(text, 'latin1'), dice) };
      });
      await Promise.all(
        batch.map(async ({ text, pieces }) => {
          const answer = await talk(gate, pieces);
          const status =
            /^HTTP\/1\.1 (\d{3}) [^\r\n]*\r\n/.exec(answer)?.[1] ?? (answer === '' ? 'cut off' : 'odd');
          // Allowed names do not resolve here: nothing is ever dialed.
          if (!['400', '403', '408', '431', '502', 'cut off'].includes(status))
            throw new Error(`${JSON.stringify(text)} was answered with ${JSON.stringify(answer)}`);
          // No byte of the request may end the response headers early, or appear as another header.
          const head = answer.split('\r\n\r\n')[0] ?? '';
          const lines = head.split('\r\n').slice(1);
          const strange = lines.filter(
            (line) =>
              !/^(Content-Type|Content-Length|Connection|X-Holdfast-Egress|X-Holdfast-Allow|Date): [\x20-\x7e]+$/.test(
                line,
              ),
          );
          if (strange.length > 0)
            throw new Error(`${JSON.stringify(text)} left ${JSON.stringify(strange)} in the answer`);
          counts.set(status, (counts.get(status) ?? 0) + 1);
        }),
      );
    }
    await end();
    expect(
      [...asked].filter(
        (name) => name !== 'open.test' && !/^[a-z0-9_-]+(\.[a-z0-9_-]+)*\.wild\.test$/.test(name),
      ),
    ).toEqual([]);
    expect(asked.has('open.test')).toBe(true);
    for (const status of ['400', '403', '502'])
      expect([status, counts.get(status) ?? 0]).toEqual([
        status,
        expect.toSatisfy((n: number) => n > REQUESTS / 50),
      ]);
    expect(splitAuthority('open.test:80')).toEqual({ host: 'open.test', port: 80 });
  },
  SOAK_MS,
);

/** A proxy whose rules allow `open.test` and names below `wild.test`; no name resolves. */
function fuzzedProxy(): { gate: SessionGate; asked: Set<string>; end: () => Promise<void> } {
  const database = temporaryDatabase();
  const sessions = new Sessions(database);
  sessions.insert(sessionRow(1));
  const policies = new Policies({
    database,
    rules: new EgressRules(database),
    profiles: new Profiles(database),
    sessions,
    events: new EventLog(database),
    now: () => 1,
  });
  policies.setRule(sessionId(1), 'allow', 'open.test', 'session');
  policies.setRule(sessionId(1), 'allow', '*.wild.test', 'session');
  const asked = new Set<string>();
  const failures: unknown[] = [];
  const note = (...args: unknown[]): void => void failures.push(args);
  const log = { debug: note, info: note, warn: note, error: note, child: () => log };
  const aggregator = new EgressEventAggregator({ record: () => undefined, now: () => 1 });
  const gate = new SessionGate({
    sessionId: sessionId(1),
    policies,
    resolve: (name) => {
      asked.add(name);
      return Promise.reject(Object.assign(new Error('not found'), { code: 'ENOTFOUND' }));
    },
    proxy: new LocalProxy(),
    aggregator,
    log,
  });
  const end = async (): Promise<void> => {
    await expect.poll(() => gate.size, { timeout: 5000 }).toBe(0);
    aggregator.close();
    expect(failures).toEqual([]);
  };
  return { gate, asked, end };
}

function parsed(url: string): URL | null {
  return URL.canParse(url) ? new URL(url) : null;
}
