// The way of a new user: deploy, set the key, run. No image is built by hand, and the key is nowhere afterwards.
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../protocol/setup.ts';
import { AGENT_PACKAGES } from '../../scripts/setup/agents.mjs';
import { NameServer } from '../egress-harness/name-server.ts';
import { Origin } from '../egress-harness/origin.ts';
import { filesWithSecret, formsIn, LOOK, shownByEngine } from '../egress-harness/secret-search.ts';
import { TEST_CERTIFICATE, TEST_CERTIFICATE_FILE } from '../egress-harness/test-certificate.ts';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';
import { packageMirror } from './package-mirror.ts';
import { ScriptedModel } from './scripted-model.ts';

const SECRET = 'sk-live-7c31f0aa+/d48b 19';
const MODEL = { name: 'api.test', address: '127.0.0.3' } as const;
const REGISTRY = 'packages.test';

let folder: string;
let origin: Origin;
let names: NameServer;
let home: TestHome;
const model = new ScriptedModel(TEST_CERTIFICATE);
let modelPort: number;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-mirror-'));
  const [agent = ''] = AGENT_PACKAGES['opencode'] ?? [];
  // Of its packages for each system only that of this one is installed.
  const own = agent.replace('opencode-ai@', `opencode-linux-${process.arch}@`);
  origin = await Origin.start({ sites: [await packageMirror([agent, own], folder)] });
  names = await NameServer.start({ [REGISTRY]: ['127.0.0.1'], [MODEL.name]: [MODEL.address] });
  modelPort = await model.listen(MODEL.address);
  home = await TestHome.create({ HOLDFAST_DNS: names.address, NODE_EXTRA_CA_CERTS: TEST_CERTIFICATE_FILE });
}, 300_000);
afterAll(async () => {
  await home.dispose();
  model.close();
  await names.dispose();
  await origin.dispose();
  await rm(folder, { recursive: true, force: true });
});

/** Only the addresses are those of the test; the rest is `examples/agents/opencode` with its packages. */
function profile(): Record<string, string> {
  const [agent = ''] = AGENT_PACKAGES['opencode'] ?? [];
  const registry = `${REGISTRY}:${origin.port}`;
  const lines = [
    'name: opencode',
    'agent: { preset: opencode }',
    'persistence: persistent',
    'permissions: allow',
    `setup: { packages: { npm: [${agent}] }, egress: [{ host: "${registry}" }, { host: "127.0.0.1:${origin.port}" }] }`,
    `credentials: [{ host: "${MODEL.name}:${modelPort}", secret: MODEL_KEY, as: bearer, url: MODEL_URL, key: MODEL_KEY_PLACE }]`,
    `egress: [{ host: "${MODEL.address}:${modelPort}" }]`,
    `env: { OPENCODE_CONFIG: /agent/opencode.json, npm_config_registry: "http://${registry}/npm/" }`,
    'limits: { memory: 2GiB, pids: 512 }',
  ];
  const options = { baseURL: '{env:MODEL_URL}/v1', apiKey: '{env:MODEL_KEY_PLACE}' };
  const provider = { npm: '@ai-sdk/openai-compatible', options, models: { scripted: {} } };
  const config = { model: 'ours/scripted', small_model: 'ours/scripted', provider: { ours: provider } };
  return { 'holdfast.yaml': `${lines.join('\n')}\n`, 'opencode.json': JSON.stringify(config) };
}

const SetupsSchema = z.object({ setups: z.array(SetupStatusSchema) });
const ShownSchema = z.object({ session: z.object({ id: z.string() }) });

test('a real agent works after deploy, secret set and run, and its key is nowhere', async () => {
  const project = await writeProject(home.projects, profile());
  await home.runOk(['deploy', project]);
  await home.runOk(['secret', 'set', 'MODEL_KEY'], `${SECRET}\n`);
  await home.runOk(['run', 'opencode', 'Please note WORD<plum>.']);
  expect(await home.runOk(['run', 'opencode', 'Which word?'])).toContain('The word is plum.');
  await home.runOk(['run', 'opencode', 'RUN<touch made>']);
  expect(await home.runOk(['workspace', 'ls', 'default'])).toContain('made');
  expect(model.authorizations).toContain(`Bearer ${SECRET}`);

  const { session } = ShownSchema.parse(await home.runJson(['session', 'show', 'default']));
  const seen = await home.runOk(['exec', 'default', '--', 'sh', '-c', LOOK]);
  expect(seen).toContain('MODEL_KEY_PLACE=holdfast-placeholder');
  expect(formsIn(Buffer.from(seen), SECRET)).toEqual([]);
  expect(formsIn(await shownByEngine(home, session.id), SECRET)).toEqual([]);
  await home.runOk(['snapshot', 'create', 'default']);
  // Workspace, HOME, snapshots, history, logs, the run directory and the database.
  expect(await filesWithSecret(home.path, SECRET)).toEqual([]);
  const { setups } = SetupsSchema.parse(await home.runJson(['setup', 'status', 'opencode']));
  const image = setups[0]?.image ?? '';
  const shown = execFileSync('docker', ['image', 'inspect', image]);
  const history = execFileSync('docker', ['image', 'history', '--no-trunc', image]);
  expect(formsIn(Buffer.concat([shown, history]), SECRET)).toEqual([]);
}, 600_000);
