import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { AgentWithState } from '../../fixtures/agent-home/agent-with-state.ts';
import { SOAK } from '../../setup/run-length.ts';
import type { TestHome } from '../../setup/test-home.ts';

/** How long somebody swaps the state while it is scanned, s. */
const SWAPPING_S = SOAK ? 600 : 15;
const WIDE = SOAK ? 200_000 : 20_000;
/** What a snapshot or the start of a sandbox may take on a busy machine. */
const PATIENT_MS = 60_000;
/** Errors that the owner of a state that is being turned over may get. */
const TYPED = /^error (conflict|file_\w+): /m;
const CreatedSchema = z.object({ id: z.string() });

describe('a hostile agent and its HOME', () => {
  let agent: AgentWithState;
  let home: TestHome;
  beforeAll(async () => {
    agent = await AgentWithState.create('evil');
    ({ home } = agent);
  });
  afterAll(() => agent.dispose());
  const run = (session: string, script: string) => agent.run(session, script);
  /** What is in the agent's HOME in a new session that begins with the snapshot. */
  const stateIn = async (snapshot: string, name: string): Promise<string> => {
    await agent.fork(snapshot, name);
    return await run(name, 'cd; find . -mindepth 1 | sort; find . -type f -exec cat {} + 2>/dev/null');
  };

  test('links in the place of state lead nowhere: not into a snapshot, and not out of HOME when it is emptied', async () => {
    await run(
      'links',
      'mkdir -p /workspace/canary; echo CANARY > /workspace/canary/file; echo CANARY > ~/loose; ' +
        'ln -s /workspace/canary ~/.claude; ln -s / ~/.local; ln -s /etc ~/.npm; ln -s /workspace ~/out; ln ~/loose ~/hard',
    );
    const { id } = await agent.snapshot('links');
    await home.runOk(['session', 'stop', 'links']);
    // A link in the place of a kept path stays a link; one on the way to it is gone.
    expect(
      await run('links', 'cat /workspace/canary/file; cd; ls -A | tr "\\n" " "; readlink .claude .npm'),
    ).toBe('CANARY\n.bashrc .claude .npm .profile /workspace/canary\n/etc\n');
    const found = await stateIn(id, 'links-fork');
    expect(found).toContain('./.claude');
    expect(found).not.toContain('CANARY');
    expect(found).not.toContain('root:');
    await home.runOk(['snapshot', 'restore', 'links', id, '--with-state']);
    expect(await run('links', 'cat /workspace/canary/file; readlink ~/.claude')).toBe(
      'CANARY\n/workspace/canary\n',
    );
  });

  test('FIFOs, unreadable modes, odd names and a wide tree neither hang nor hide anything', async () => {
    await run(
      'odd',
      `cd; mkdir -p .claude/deep .local/share/mind junk; mkfifo .claude/pipe .bash_history; echo KEPT > .claude/deep/file; ` +
        `printf x > .claude/$(printf 'a\\nb\\377'); for n in $(seq ${WIDE}); do echo; done | split -l 1 -a 4 - junk/f; ` +
        'chmod 000 .claude/deep/file .claude/deep .claude .local junk; chmod 000 .',
    );
    const began = performance.now();
    const { id } = await agent.snapshot('odd');
    await home.runOk(['session', 'stop', 'odd']);
    expect(await run('odd', 'cd; ls -A | tr "\\n" " "; chmod -R u+rwx .claude; cat .claude/deep/file')).toBe(
      '.bashrc .claude .local .profile KEPT\n',
    );
    expect(performance.now() - began).toBeLessThan(PATIENT_MS);
    await home.runOk(['snapshot', 'restore', 'odd', id, '--with-state']);
    expect(await run('odd', 'stat -c %a ~/.claude; chmod -R u+rwx ~/.claude; cat ~/.claude/deep/file')).toBe(
      '0\nKEPT\n',
    );
  });

  test('state that is swapped with links while it is scanned shows nothing from outside', async () => {
    await run(
      'swap',
      'mkdir -p ~/.claude/a ~/.local/share/mind /workspace/secret; echo INSIDE > ~/.claude/a/file; ' +
        'echo CANARY > /workspace/secret/file; echo CANARY > /workspace/secret/.credentials.json; echo CANARY > ~/.claude/.credentials.json',
    );
    const swapping = home.run([
      'run',
      'evil',
      `cd; end=$(( $(date +%s) + ${String(SWAPPING_S)} )); while [ $(date +%s) -lt $end ]; do ` +
        'mv .claude .real; ln -s /workspace/secret .claude; rm .claude; mv .real .claude; ' +
        'mv .claude/a .claude/b; ln -s /workspace/secret .claude/a; ln -f .claude/.credentials.json .claude/h$$; rm .claude/a .claude/h$$; mv .claude/b .claude/a; done',
      '--session',
      'swap',
    ]);
    const made: string[] = [];
    const until = Date.now() + SWAPPING_S * 900;
    while (Date.now() < until) {
      const { code, stdout, stderr } = await home.run(['snapshot', 'create', 'swap', '--json']);
      if (code === 0) made.push(CreatedSchema.parse(JSON.parse(stdout)).id);
      else expect(stderr).toMatch(TYPED);
    }
    expect((await swapping).code).toBe(0);
    expect(made.length).toBeGreaterThan(0);
    for (const [index, id] of [...new Set(made)].slice(-4).entries()) {
      expect(await home.runJson(['snapshot', 'verify', id])).toMatchObject({ ok: true });
      expect(await stateIn(id, `swap-${String(index)}`)).not.toContain('CANARY');
    }
    // The sidecar left no notes about HOME, and the session goes on.
    const control = join(home.path, 'run', await agent.idOf('swap'), 'control/home');
    for (const notes of await readdir(control)) expect(await readdir(join(control, notes))).toEqual([]);
    expect(await run('swap', 'cat ~/.claude/a/file')).toBe('INSIDE\n');
    expect(await readFile(join(home.path, 'id'), 'utf8')).not.toBe('');
  });
});
