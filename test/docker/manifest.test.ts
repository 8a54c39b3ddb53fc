import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const CopySchema = z.object({
  note: z.string(),
  id: z.string(),
  reason: z.string(),
  session: z.object({ id: z.string(), profile: z.string() }),
  snapshot: z.object({ id: z.string() }).nullable(),
});
const ShownSchema = z.object({
  statement: z.object({
    predicate: z.object({
      ports: z
        .object({ total: z.number(), listed: z.array(z.object({ address: z.string(), port: z.number() })) })
        .nullable(),
    }),
  }),
});

const session = 'observed/default';
let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, shellProject('observed'))]);
});
afterAll(async () => {
  await home.dispose();
});

const inside = async (script: string): Promise<string> =>
  home.runOk(['exec', session, '--', 'sh', '-c', script]);
// A name where the copy is not yet in place may be a pipe, on which cat would wait for ever.
const readCopy = async () =>
  CopySchema.parse(JSON.parse(await inside('timeout 5 cat /run/holdfast/manifest.json')));
const portsNow = async () =>
  ShownSchema.parse(await home.runJson(['manifest', 'show', session])).statement.predicate.ports;

test('a manifest names the ports on which programs of the sandbox listen, and none of ours', async () => {
  await home.runOk(['run', 'observed', 'true']);
  expect(await portsNow()).toEqual({ total: 0, listed: [] });
  await inside('nohup python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & sleep 0.1');
  await vi.waitFor(
    async () =>
      expect(await portsNow()).toEqual({ total: 1, listed: [{ address: '127.0.0.1', port: 8123 }] }),
    { timeout: 20_000, interval: 300 },
  );
  expect(await home.runOk(['manifest', 'show', session])).toMatch(/^Listening\s+127\.0\.0\.1:8123$/m);
  await home.runOk(['session', 'stop', session]);
  // Nothing is started for it.
  expect(await portsNow()).toBeNull();
  expect(await home.runJson(['session', 'show', session])).toMatchObject({
    session: { status: 'resumable' },
  });
});

test('the agent has a copy for its information, whatever it does to the name', async () => {
  const newest = async (before: string | null) => {
    const { id } = z.object({ id: z.string() }).parse(await home.runJson(['snapshot', 'create', session]));
    await vi.waitFor(
      async () => {
        const copy = await readCopy();
        expect([copy.snapshot?.id, copy.id !== before]).toEqual([id, true]);
      },
      { timeout: 20_000, interval: 300 },
    );
    return (await readCopy()).id;
  };
  await inside('echo one > /workspace/one');
  const first = await newest(null);
  const copy = await readCopy();
  expect(copy).toMatchObject({ reason: 'snapshot', session: { profile: 'observed' } });
  expect(copy.note).toContain('Not signed');
  expect(JSON.stringify(copy)).not.toContain(home.path);

  await inside('echo untouched > /workspace/victim; ln -sf /workspace/victim /run/holdfast/manifest.json');
  const second = await newest(first);
  expect(await inside('cat /workspace/victim')).toBe('untouched\n');
  await inside(
    'rm /run/holdfast/manifest.json; mkdir -p /run/holdfast/manifest.json/x; echo two > /workspace/two',
  );
  const third = await newest(second);
  await inside(
    'rm -f /run/holdfast/manifest.json; mkfifo /run/holdfast/manifest.json; echo 3 > /workspace/three',
  );
  await newest(third);
  await home.runOk(['run', 'observed', 'true']);
});
