import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { EgressEventSchema } from '../../../protocol/egress.ts';
import { type Certificates, makeCertificates } from '../../egress-harness/certificates.ts';
import { gitSite } from '../../egress-harness/git-site.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { Origin } from '../../egress-harness/origin.ts';
import { npmSite, pythonSite } from '../../egress-harness/package-sites.ts';
import { type CommandResult, TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';

const OPEN = 'pages.open.test';
const CLOSED = 'pages.closed.test';
/** Duration of the client; for a slow one, without the time of doing nothing. Retries add time. */
const DENIAL_MS = 3000;

let folder: string;
let names: NameServer;
let certificates: Certificates;
let origin: Origin;
let home: TestHome;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-clients-'));
  names = await NameServer.start({ [OPEN]: ['127.0.0.1'], [CLOSED]: ['127.0.0.1'] });
  certificates = await makeCertificates([OPEN, CLOSED]);
  const sites = [
    await gitSite(folder, 'thing', { 'README.md': 'from the repository\n' }),
    await npmSite('tiny-thing', 'module.exports = "from the registry";\n'),
    pythonSite('tinything', 'WHAT = "from the index"\n'),
  ];
  origin = await Origin.start({ certificates, sites });
  home = await TestHome.create({ HOLDFAST_DNS: names.address });
  const rules = [OPEN, '127.0.0.1'].flatMap((host) => [
    `${host}:${origin.port}`,
    `${host}:${origin.tlsPort}`,
  ]);
  const project = await writeProject(home.projects, {
    ...shellProject(
      'clients',
      `persistence: persistent
workspace: { seed: false }
egress: [${rules.map((host) => `{ host: "${host}" }`).join(', ')}]
env:
  CURL_CA_BUNDLE: /agent/ca.pem
  GIT_SSL_CAINFO: /agent/ca.pem
  NODE_EXTRA_CA_CERTS: /agent/ca.pem
  npm_config_cafile: /agent/ca.pem
  PIP_CERT: /agent/ca.pem
  SSL_CERT_FILE: /agent/ca.pem
`,
    ),
    'ca.pem': certificates.ca,
  });
  await home.runOk(['deploy', project]);
});
afterAll(async () => {
  await home.dispose();
  await origin.dispose();
  await names.dispose();
  await rm(folder, { recursive: true, force: true });
});

const plain = (host: string) => `http://${host}:${origin.port}`;
const tls = (host: string) => `https://${host}:${origin.tlsPort}`;
const turn = (script: string): Promise<CommandResult> => home.run(['run', 'clients', script]);

async function decisions(): Promise<z.infer<typeof EgressEventSchema>[]> {
  const lines = await home.runOk(['session', 'events', 'default', '--type', 'egress', '--json']);
  return lines
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => EgressEventSchema.parse(z.object({ data: z.unknown() }).parse(JSON.parse(line)).data));
}

interface Client {
  readonly idle: string;
  /** Fetches from this base URL and prints the response. */
  readonly fetch: (base: string) => string;
  readonly got: string;
  /** The message that it shows for a denial, over HTTP and HTTPS. */
  readonly shows: readonly [http: RegExp, https: RegExp];
}

const python = (base: string) =>
  `python3 -c 'import urllib.request as u; print(u.urlopen("${base}/hello").read().decode())'`;
const CLIENTS: Readonly<Record<string, Client>> = {
  curl: {
    idle: 'curl --version',
    fetch: (base) => `curl -sS --fail-with-body ${base}/hello`,
    got: 'hello',
    shows: [/no rule names it.*holdfast policy allow ses-\S+ 'pages\.closed\.test:\d+'/s, /403/],
  },
  'git clone': {
    idle: 'git --version',
    fetch: (base) => `rm -rf thing; git clone -q ${base}/git/thing.git && cat thing/README.md`,
    got: 'from the repository',
    shows: [/403/, /403/],
  },
  'npm install': {
    idle: 'npm --version',
    fetch: (base) =>
      `rm -rf n; mkdir n; cd n; npm install --no-audit --no-fund --registry ${base}/npm/ tiny-thing && node -p 'require("tiny-thing")'`,
    got: 'from the registry',
    shows: [/403/, /403/],
  },
  'pip install': {
    // Its run without any network access, which is mostly loading its own modules.
    idle: 'pip install --quiet --disable-pip-version-check --no-index tinything 2>&1',
    fetch: (base) =>
      `rm -rf p; pip install --quiet --disable-pip-version-check --no-cache-dir --target p --trusted-host ${OPEN} --trusted-host ${CLOSED} --index-url ${base}/simple/ tinything && PYTHONPATH=p python3 -c 'import tinything; print(tinything.WHAT)'`,
    got: 'from the index',
    shows: [
      /No matching distribution/,
      /403 Holdfast: pages\.closed\.test:\d+ is not allowed, no rule names it/,
    ],
  },
  "Node's fetch": {
    idle: 'node -e 0',
    fetch: (base) =>
      `node -e 'fetch("${base}/hello").then(async (r) => { console.log(await r.text()); process.exitCode = r.ok ? 0 : 1 })'`,
    got: 'hello',
    // It uses CONNECT for HTTP too.
    shows: [/Proxy response \(403\)/, /Proxy response \(403\)/],
  },
  "Python's urllib": {
    idle: 'python3 -c 0',
    fetch: python,
    got: 'hello',
    shows: [/403/, /403 Holdfast: pages\.closed\.test:\d+ is not allowed, no rule names it/],
  },
};

describe.each(Object.entries(CLIENTS))('%s', (_name, { idle, fetch, got, shows }) => {
  test.each([
    ['HTTP', plain],
    ['HTTPS', tls],
  ])('works over %s if a rule allows it', async (_protocol, base) => {
    const { code, stdout, stderr } = await turn(fetch(base(OPEN)));
    expect([code, stdout, stderr]).toEqual([0, expect.stringContaining(got), expect.any(String)]);
  });

  test.each([
    ['HTTP', plain, shows[0]],
    ['HTTPS', tls, shows[1]],
  ])('is denied over %s at once without a rule, and reported', async (_protocol, base, shown) => {
    // A late denial would repeat; a busy machine does not.
    const { code, stdout, stderr } = await turn(`
now() { date +%s%N | cut -c1-13; }
started=0
for try in 1 2 3; do
  a=$(now); (${fetch(base(CLOSED))}); code=$?; b=$(now)
  took=$((b - a - started))
  [ $took -lt ${DENIAL_MS} ] && break
  a=$(now); ${idle} >/dev/null; b=$(now); started=$((b - a))
done
echo "started in $started"; echo "took $took"; exit $code`);
    expect(code).toBe(1);
    expect(stdout + stderr).toMatch(shown);
    const took = Number(/^took (-?\d+)$/m.exec(stdout)?.[1]);
    const started = Number(/^started in (\d+)$/m.exec(stdout)?.[1]);
    // A client that needs longer than that to do nothing is slow by itself or because of other load.
    expect(took).toBeLessThan(Math.max(DENIAL_MS, 2 * started));
  });
});

test('every decision is an event that names the rule to allow it, and nothing denied was reached', async () => {
  const seen = await decisions();
  for (const port of [origin.port, origin.tlsPort]) {
    expect(seen).toContainEqual(
      expect.objectContaining({
        decision: 'denied',
        reason: 'no_rule',
        host: CLOSED,
        port,
        rule: null,
        allow: `${CLOSED}:${port}`,
      }),
    );
    expect(seen).toContainEqual(
      expect.objectContaining({
        decision: 'allowed',
        host: OPEN,
        port,
        rule: `${OPEN}:${port}`,
        from: 'file',
        address: '127.0.0.1',
      }),
    );
  }
  expect(origin.requests.filter(({ host }) => host.startsWith(CLOSED))).toEqual([]);
  expect(names.queries.filter((asked) => asked.startsWith(CLOSED))).toEqual([]);
});

test('the command in a denial allows the host at once, in the running sandbox', async () => {
  const denied = await turn(`curl -sS ${plain(CLOSED)}/hello`);
  const command = /^To allow it: holdfast (.*)$/m.exec(denied.stdout)?.[1] ?? '';
  await home.runOk(command.split(' ').map((word) => word.replaceAll("'", '')));
  expect((await turn(`curl -sS ${plain(CLOSED)}/hello`)).stdout).toBe('hello\n');
  await home.runOk(['policy', 'deny', 'default', `${CLOSED}:${origin.port}`]);
  expect((await turn(`curl -sS ${plain(CLOSED)}/hello`)).stdout).toContain('a rule denies it');
});
