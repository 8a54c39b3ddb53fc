import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { runToEnd } from '../../fixtures/cli/cli-run.ts';
import { keyPair, signed, statement } from '../../fixtures/manifest.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const { privateKey, pem } = keyPair();
/** No supervisor can start there. */
const home = '/nonexistent/home';

function files() {
  const folder = temporaryDirectory();
  const [manifest, other, key] = ['a.json', 'b.json', 'key.pem'].map((name) => join(folder, name));
  if (manifest === undefined || other === undefined || key === undefined) throw new Error('no paths');
  writeFileSync(manifest, signed(privateKey));
  writeFileSync(other, signed(privateKey, statement({ memory: 3 })));
  writeFileSync(key, pem);
  return { manifest, other, key };
}

test('a saved manifest is verified with the public key alone', async () => {
  const { manifest, key } = files();
  const { code, stdout, stderr } = await runToEnd(['manifest', 'verify', manifest, '--key', key], { home });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toMatch(
    /^Valid: [\s\S]*coder\/default[\s\S]*api\.example\.com:443[\s\S]*Not proven by it:\n {2}- /,
  );
  const json = await runToEnd(['manifest', 'verify', manifest, '--key', key, '--json'], { home });
  expect(JSON.parse(json.stdout)).toMatchObject({ valid: true, statement: { predicate: { memory: 2 } } });
});

test('a changed one is refused, with exit code 1', async () => {
  const { manifest, key } = files();
  const envelope = JSON.parse(readFileSync(manifest, 'utf8')) as { payload: string };
  const payload = Buffer.from(envelope.payload, 'base64').toString().replace('"memory":2', '"memory":9');
  writeFileSync(manifest, JSON.stringify({ ...envelope, payload: Buffer.from(payload).toString('base64') }));
  const { code, stdout } = await runToEnd(['manifest', 'verify', manifest, '--key', key], { home });
  expect(code).toBe(1);
  expect(stdout).toBe('NOT VALID: its signature does not match: it was changed after it was signed\n');
  const json = await runToEnd(['manifest', 'verify', manifest, '--key', key, '--json'], { home });
  expect({ code: json.code, ...(JSON.parse(json.stdout) as object) }).toMatchObject({
    code: 1,
    valid: false,
  });
});

test('a name that would move the cursor is printed with its characters escaped', async () => {
  const { manifest, key } = files();
  const { session } = statement().predicate;
  writeFileSync(
    manifest,
    signed(privateKey, statement({ session: { ...session, name: '\u001b[2J\u202e' } })),
  );
  const { stdout } = await runToEnd(['manifest', 'verify', manifest, '--key', key], { home });
  expect(stdout).toContain('coder/\\e[2J\\u{202e}');
});

test('two saved ones are compared without a supervisor', async () => {
  const { manifest, other } = files();
  const { code, stdout } = await runToEnd(['manifest', 'diff', manifest, other], { home });
  expect({ code, stdout }).toEqual({ code: 0, stdout: '~ memory: 2 → 3\n' });
  const json = await runToEnd(['manifest', 'diff', manifest, other, '--json'], { home });
  expect(JSON.parse(json.stdout)).toEqual({ differences: [{ path: 'memory', before: '2', after: '3' }] });
});

test('what is no key, no file and no manifest is said', async () => {
  const { manifest, key } = files();
  const run = (...args: string[]) => runToEnd(['manifest', ...args], { home });
  expect((await run('verify', manifest, '--key', manifest)).stderr).toMatch(
    /^error usage: .*not a public Ed25519 key/,
  );
  expect((await run('verify', manifest, '--key', `${key}.none`)).stderr).toMatch(
    /^error usage: there is no file/,
  );
  expect((await run('verify', `${manifest}.none.json`, '--key', key)).stderr).toMatch(
    /^error usage: there is no file/,
  );
  expect((await run('diff', manifest, key)).stderr).toMatch(/^error invalid_params: .*is not a manifest/);
});
