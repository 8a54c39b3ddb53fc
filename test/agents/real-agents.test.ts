import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { ScriptedModel } from './scripted-model.ts';

const ROOT = join(import.meta.dirname, '../..');

/** A real agent of npm, in the image that `npm run agent-image -- NAME` builds, at our model. */
interface RealAgent {
  readonly name: string;
  /** Lines of its profile. */
  readonly profile: (url: string) => readonly string[];
  readonly files?: (url: string) => Readonly<Record<string, string>>;
  /** What it remembers, below HOME. */
  readonly memory: string;
  /** It destroys a conversation that it loads in the clock minute in which it began. */
  readonly needsNextMinute?: boolean;
}

const AGENTS: readonly RealAgent[] = [
  {
    name: 'claude',
    // Its client adds the version to the path by itself.
    profile: (url) => [`env: { ANTHROPIC_BASE_URL: '${url.replace(/\/v1$/, '')}', ANTHROPIC_API_KEY: none }`],
    memory: '.claude',
  },
  {
    name: 'qwen',
    profile: (url) => [`env: { OPENAI_BASE_URL: '${url}', OPENAI_API_KEY: none, OPENAI_MODEL: scripted }`],
    memory: '.qwen',
  },
  {
    name: 'codex',
    profile: (url) => [
      'env:',
      '  OPENAI_API_KEY: none',
      '  MODEL_PROVIDER: ours',
      `  CODEX_CONFIG: '${JSON.stringify({
        model: 'scripted',
        model_providers: {
          ours: { name: 'ours', base_url: url, env_key: 'OPENAI_API_KEY', wire_api: 'responses' },
        },
      })}'`,
    ],
    memory: '.codex',
  },
  {
    name: 'gemini',
    profile: (url) => [
      `env: { GOOGLE_GEMINI_BASE_URL: '${url.replace(/\/v1$/, '')}', GEMINI_API_KEY: none, GEMINI_MODEL: gemini-2.5-pro }`,
    ],
    memory: '.gemini',
    needsNextMinute: true,
  },
  {
    name: 'opencode',
    profile: () => ['env: { OPENCODE_CONFIG: /agent/opencode.json }'],
    files: (url) => ({
      'opencode.json': JSON.stringify({
        model: 'ours/scripted',
        small_model: 'ours/scripted',
        provider: {
          ours: {
            npm: '@ai-sdk/openai-compatible',
            options: { baseURL: url, apiKey: 'none' },
            models: { scripted: {} },
          },
        },
      }),
    }),
    memory: '.local/share/opencode',
  },
];

class Installation {
  readonly home = mkdtempSync(join(tmpdir(), 'holdfast-agents-'));

  run(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
    return new Promise((resolve) => {
      const child = spawn(process.execPath, [join(ROOT, 'dist/holdfast.cjs'), ...args], {
        env: { ...process.env, HOLDFAST_HOME: this.home },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let [stdout, stderr] = ['', ''];
      child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
      child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
      child.once('close', (code) => resolve({ code, stdout, stderr }));
    });
  }

  async json(...args: string[]): Promise<unknown> {
    const { code, stdout, stderr } = await this.run(...args, '--json');
    if (code !== 0) throw new Error(`${args.join(' ')}: ${stderr}${stdout}`);
    return JSON.parse(stdout);
  }

  async dispose(): Promise<void> {
    await this.run('purge', '--force');
    rmSync(this.home, { recursive: true, force: true });
  }
}

const TurnSchema = z.looseObject({ turnId: z.string(), status: z.string(), output: z.unknown() });
const PermissionsSchema = z.looseObject({ permissions: z.array(z.looseObject({ id: z.string() })) });

describe.each(AGENTS)('$name', ({ name, profile, files, memory, needsNextMinute }) => {
  test('works, asks, is cancelled, and remembers by itself and from our history', async () => {
    const model = new ScriptedModel();
    const port = await model.listen();
    const ours = new Installation();
    onTestFinished(async () => {
      model.close();
      await ours.dispose();
    });
    const url = `http://host.holdfast.internal:${String(port)}/v1`;
    const folder = join(ours.home, '..', `${ours.home.split('/').at(-1) ?? ''}-profile`);
    mkdirSync(folder);
    onTestFinished(() => void execFileSync('rm', ['-rf', folder]));
    const lines = [
      `name: ${name}`,
      `image: holdfast/agent-${name}`,
      `agent: { preset: ${name} }`,
      'persistence: persistent',
      'permissions: ask',
      'workspace: { seed: false }',
      `egress: [{ host: 'host.holdfast.internal:${String(port)}' }]`,
      ...profile(url),
    ];
    writeFileSync(join(folder, 'holdfast.yaml'), `${lines.join('\n')}\n`);
    for (const [file, text] of Object.entries(files?.(url) ?? {})) writeFileSync(join(folder, file), text);
    await ours.json('deploy', folder);

    const turn = async (prompt: string): Promise<z.infer<typeof TurnSchema>> =>
      TurnSchema.parse(await ours.json('run', name, prompt));
    /** Starts a turn, answers what it asks with `answer` until it ends. */
    const answered = async (prompt: string, answer: 'allow' | 'reject'): Promise<number> => {
      const { turnId } = TurnSchema.parse(await ours.json('run', name, prompt, '--no-wait'));
      let asked = 0;
      const ended = ours.json('turn', 'wait', turnId);
      const over = new AbortController();
      void ended.finally(() => over.abort()).catch(() => undefined);
      while (!over.signal.aborted) {
        const { permissions } = PermissionsSchema.parse(await ours.json('permission', 'list'));
        for (const { id } of permissions) {
          asked += 1;
          await ours.run('permission', 'answer', id, answer);
        }
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      await ended.catch(() => undefined);
      return asked;
    };
    const connections = async (): Promise<string> =>
      (await ours.run('session', 'events', 'default', '--type', 'agent.connected', '--json')).stdout;
    const has = async (file: string): Promise<boolean> =>
      (await ours.run('workspace', 'cat', 'default', file)).code === 0;

    // It talks, and keeps a word of the conversation in its own memory.
    expect(await turn('Please note WORD<plum>.')).toMatchObject({ status: 'succeeded' });
    expect(JSON.stringify(await turn('Which word?'))).toContain('The word is plum.');

    // A command that a person allows runs; one that is rejected does not.
    expect(await answered('RUN<touch allowed>', 'allow')).toBeGreaterThan(0);
    expect(await has('allowed')).toBe(true);
    expect(await answered('RUN<touch rejected>', 'reject')).toBeGreaterThan(0);
    expect(await has('rejected')).toBe(false);

    // Cancelled in the middle of a command: nothing of it survives.
    const { turnId } = TurnSchema.parse(
      await ours.json('run', name, 'RUN<touch begun; sleep 987>', '--no-wait'),
    );
    await expect
      .poll(
        async () => {
          const { permissions } = PermissionsSchema.parse(await ours.json('permission', 'list'));
          for (const { id } of permissions) await ours.run('permission', 'answer', id, 'allow');
          return has('begun');
        },
        { timeout: 60_000, interval: 500 },
      )
      .toBe(true);
    await ours.run('turn', 'cancel', turnId);
    await ours.run('turn', 'wait', turnId);
    const processes = await ours.run(
      'exec',
      'default',
      '--',
      'sh',
      '-c',
      'cat /proc/[0-9]*/cmdline | tr "\\0" " "',
    );
    expect(processes.stdout).not.toContain('sleep 987');

    // The containers are gone: it goes on from its own memory.
    if (needsNextMinute === true)
      await new Promise((resolve) => setTimeout(resolve, 61_000 - (Date.now() % 60_000)));
    await ours.run('session', 'stop', 'default');
    expect(JSON.stringify(await turn('Which word?'))).toContain('The word is plum.');
    expect(await connections()).toMatch(/"how":"(loaded|resumed)"/);

    // Its memory is gone as well: it goes on from our history.
    await ours.run('exec', 'default', '--', 'sh', '-c', `rm -rf "$HOME/${memory}"`);
    await ours.run('session', 'stop', 'default');
    expect(JSON.stringify(await turn('Which word?'))).toContain('The word is plum.');
    expect((await connections()).trim().split('\n').at(-1)).toContain('"how":"handover"');
  }, 600_000);
});
