// The way of a new user with each example as it is: deploy, set the key, run. No image is built by hand, and the key is nowhere afterwards.
import { execFileSync } from 'node:child_process';
import { appendFile, cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { CREDENTIAL_PRESETS } from '../../protocol/credential-presets.ts';
import { SetupStatusSchema } from '../../protocol/setup.ts';
import { AGENT_PACKAGES } from '../../scripts/setup/agents.mjs';
import { makeCertificates } from '../egress-harness/certificates.ts';
import { NameServer } from '../egress-harness/name-server.ts';
import { Origin } from '../egress-harness/origin.ts';
import { filesWithSecret, formsIn, LOOK, shownByEngine } from '../egress-harness/secret-search.ts';
import { TestHome } from '../setup/test-home.ts';
import { packageMirror } from './package-mirror.ts';
import { ScriptedModel } from './scripted-model.ts';

const EXAMPLES = join(import.meta.dirname, '../../examples/agents');
const SECRET = 'sk-live-7c31f0aa+/d48b 19';
/** Stands for the model's servers, at their port. */
const MODEL_ADDRESS = '127.0.0.3';

const AGENTS = [
  { name: 'opencode', service: 'anthropic' },
  { name: 'claude', service: 'anthropic' },
  { name: 'codex', service: 'openai' },
  { name: 'gemini', service: 'gemini' },
  { name: 'qwen', service: 'openai' },
] as const;

const SetupsSchema = z.object({ setups: z.array(SetupStatusSchema) });
const ShownSchema = z.object({ session: z.object({ id: z.string() }) });

const PermissionsSchema = z.object({ permissions: z.array(z.looseObject({ id: z.string() })) });

/** A turn whose questions are all answered with yes. Returns how many there were. */
async function runAllowed(home: TestHome, name: string, prompt: string): Promise<number> {
  let asked = 0;
  const ended = new AbortController();
  const run = home.runOk(['run', name, prompt]).finally(() => ended.abort());
  while (!ended.signal.aborted) {
    const { permissions } = PermissionsSchema.parse(await home.runJson(['permission', 'list']));
    for (const { id } of permissions) {
      asked += 1;
      await home.run(['permission', 'answer', id, 'allow']);
    }
    await sleep(200, undefined, { signal: ended.signal }).catch(() => undefined);
  }
  await run;
  return asked;
}

const isRoot = process.getuid?.() === 0;

describe.each(AGENTS)('the example $name', ({ name, service }) => {
  test.skipIf(!isRoot)(
    'works after deploy, secret set and run, and its key is nowhere (root)',
    async () => {
      const { host, secret } = CREDENTIAL_PRESETS[service];
      const folder = await mkdtemp(join(tmpdir(), 'holdfast-mirror-'));
      onTestFinished(() => rm(folder, { recursive: true, force: true }));
      const origin = await Origin.start({ sites: [await packageMirror(AGENT_PACKAGES[name] ?? [], folder)] });
      onTestFinished(() => origin.dispose());
      const names = await NameServer.start({ [host]: [MODEL_ADDRESS] });
      onTestFinished(() => names.dispose());
      const { ca, certificate, key } = await makeCertificates([host]);
      const authority = join(folder, 'ca.pem');
      await writeFile(authority, ca);
      const model = new ScriptedModel({ cert: certificate, key });
      onTestFinished(() => model.close());
      await model.listen(MODEL_ADDRESS, 443);
      const home = await TestHome.create({
        HOLDFAST_NPM_REGISTRY: `http://localhost:${origin.port}/npm/`,
        HOLDFAST_DNS: names.address,
        NODE_EXTRA_CA_CERTS: authority,
      });
      onTestFinished(() => home.dispose());

      await home.runOk(['deploy', join(EXAMPLES, name)]);
      await home.runOk(['secret', 'set', secret], `${SECRET}\n`);
      // The model's servers have no private address; that of the test is allowed here.
      await home.runOk(['session', 'create', name, '--name', 'default']);
      await home.runOk(['policy', 'allow', 'default', `${MODEL_ADDRESS}:443`]);
      expect(await home.runOk(['run', name, 'Please note WORD<plum>.'])).toContain('The word is plum.');
      expect(await home.runOk(['run', name, 'Which word?'])).toContain('The word is plum.');
      expect(await runAllowed(home, name, 'RUN<touch made>')).toBeGreaterThan(0);
      expect(await home.runOk(['workspace', 'ls', 'default'])).toContain('made');
      expect(model.keys.some((sent) => sent.endsWith(SECRET))).toBe(true);

      const { session } = ShownSchema.parse(await home.runJson(['session', 'show', 'default']));
      const seen = await home.runOk(['exec', 'default', '--', 'sh', '-c', LOOK]);
      expect(seen).toContain(`${secret}=${CREDENTIAL_PRESETS[service].placeholder}`);
      expect(formsIn(Buffer.from(seen), SECRET)).toEqual([]);
      expect(formsIn(await shownByEngine(home, session.id), SECRET)).toEqual([]);
      await home.runOk(['snapshot', 'create', 'default']);
      // Workspace, HOME, snapshots, history, logs, the run directory and the database.
      expect(await filesWithSecret(home.path, SECRET)).toEqual([]);
      const { setups } = SetupsSchema.parse(await home.runJson(['setup', 'status', name]));
      const image = setups[0]?.image ?? '';
      const shown = execFileSync('docker', ['image', 'inspect', image]);
      const history = execFileSync('docker', ['image', 'history', '--no-trunc', image]);
      expect(formsIn(Buffer.concat([shown, history]), SECRET)).toEqual([]);

      // Whoever allows everything is asked for nothing, and the command runs all the same.
      const allowing = join(folder, 'allowing');
      await cp(join(EXAMPLES, name), allowing, { recursive: true });
      await appendFile(join(allowing, 'holdfast.yaml'), 'permissions: allow\n');
      await home.runOk(['deploy', allowing]);
      await home.runOk(['session', 'create', name, '--name', 'unasked']);
      await home.runOk(['policy', 'allow', 'unasked', `${MODEL_ADDRESS}:443`]);
      await home.runOk(['run', name, 'RUN<touch made>', '--session', 'unasked', '--timeout', '60']);
      expect(await home.runOk(['workspace', 'ls', 'unasked'])).toContain('made');
    },
    900_000,
  );
});
