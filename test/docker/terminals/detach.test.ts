import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';
import { HAS_SCRIPT, Sitting } from '../../fixtures/cli/sitting.ts';
import { openTerminal } from './attached-terminal.ts';

/** A fake agent that waits for an approval on the whole screen: it writes down every byte that it gets. */
const AGENT = String.raw`
import os, sys, tty
tty.setraw(0)
log = open('/workspace/input', 'ab', buffering=0)
out = sys.stdout
out.write('\x1b[?1049h\x1b[?25l\x1b[?1003;1006h\x1b[?1004h\x1b[?2004h\x1b[>1u\x1b[2J\x1b[HAllow the edit?\r\n\u276f 1. Yes')
out.flush()
while True:
    data = os.read(0, 4096)
    if not data:
        break
    log.write(data)
    if b'q' in data:
        break
out.write('\x1b[?1049l')
`;

describe.skipIf(!HAS_SCRIPT)('detaching from a full-screen agent (needs script)', () => {
  let home: TestHome;
  const sittings: Sitting[] = [];
  beforeAll(async () => {
    home = await TestHome.create();
    const more = 'persistence: persistent\n';
    await home.runOk([
      'deploy',
      await writeProject(home.projects, { ...shellProject('seat', more), 'agent.py': AGENT }),
    ]);
  });
  afterAll(async () => {
    for (const sitting of sittings) sitting.kill();
    await home.dispose();
  });
  const sit = (...args: string[]): Sitting => {
    const sitting = new Sitting({ ...process.env, HOLDFAST_HOME: home.path }, args);
    sittings.push(sitting);
    return sitting;
  };

  test.each([
    ['a control character', '\x1dd', ''],
    [
      'kitty keys, with modifier keys and focus reported',
      '\x1b[57442;5u\x1b[93;5:1u\x1b[93;5:3u\x1b[57442;1:3u\x1b[I\x1b[100;1:1u',
      '\x1b[57442;5u\x1b[57442;1:3u\x1b[I',
    ],
    [
      'modifyOtherKeys, with answers of the terminal and the mouse in between',
      '\x1b[27;5;93~\x1b[?62;22c\x1b[<35;3;4Md',
      '\x1b[?62;22c\x1b[<35;3;4M',
    ],
  ])('sends it no byte of the keys, which come as %s', async (name, keys, reports) => {
    const session = `left-${String(name.length)}`;
    await home.runOk(['session', 'create', 'seat', '--name', session]);
    const { id, sessionId } = await openTerminal(home, session, '--', 'python3', '/agent/agent.py');
    const input = async (): Promise<string> =>
      readFile(join(home.path, 'workspaces', sessionId, 'input'), 'latin1').catch(() => '');

    const sitting = sit('terminal', 'attach', id);
    await sitting.shows('1. Yes');
    expect(sitting.text.indexOf('Ctrl+] d detaches')).toBeLessThan(sitting.text.indexOf('\x1b[?1049h'));
    expect(sitting.text).toContain('Ctrl+] d detaches');
    sitting.type('\x1b[B');
    await waitUntil('the arrow', async () => (await input()) === '\x1b[B');
    sitting.type(keys);
    expect(await sitting.ended).toBe(0);
    // In this order: the screen is given back, then it is said how to return.
    const end = sitting.text.slice(sitting.text.indexOf('1. Yes'));
    for (const mode of ['?1049l', '?25h', '?1003l', '?1004l', '?2004l', '<1u']) {
      const at = end.indexOf(`\x1b[${mode}`);
      expect(at, mode).toBeGreaterThan(0);
      expect(at, mode).toBeLessThan(end.indexOf('Detached. Attach again'));
    }

    const again = sit('terminal', 'attach', id);
    await again.shows('1. Yes');
    again.type('q');
    expect(await again.ended).toBe(0);
    const got = await input();
    // Nothing but what the terminal said by itself came between.
    expect(got).toBe(`\x1b[B${reports}q`);
    expect(got).not.toMatch(/[\r\n]/);
  });

  test('COLORTERM is that of the client’s terminal, and truecolor if it has none', async () => {
    await home.runOk(['session', 'create', 'seat', '--name', 'colours']);
    const asked = 'echo "TERM=$TERM COLORTERM=${COLORTERM-unset}."';
    const sitting = sit('terminal', 'open', 'colours', '--', 'sh', '-c', asked);
    await sitting.shows('TERM=xterm-256color COLORTERM=24bit.');
    expect(await sitting.ended).toBe(0);
    const shown = async (...args: string[]): Promise<string> => {
      const { id } = await openTerminal(home, 'colours', ...args, '--', 'sh', '-c', asked);
      const again = sit('terminal', 'attach', id);
      await again.ended;
      return again.text;
    };
    expect(await shown()).toContain('TERM=xterm-256color COLORTERM=truecolor.');
    expect(await shown('--env', 'COLORTERM=')).toContain('TERM=xterm-256color COLORTERM=unset.');
  });
});
