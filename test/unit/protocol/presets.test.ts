import { describe, expect, test } from 'vitest';
import { parseHostPattern } from '../../../protocol/egress.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { PRESETS, SIGN_IN_FILES } from '../../../protocol/presets/index.ts';
import { PRESET_NAMES } from '../../../protocol/presets/names.ts';
import { PresetSchema } from '../../../protocol/presets/preset.ts';
import type { Profile } from '../../../protocol/profile.ts';
import { StoredProfileSchema } from '../../../supervisor/store/profile-config.ts';
import { checkProfile } from '../../../supervisor/profiles/read.ts';

const isWithin = (path: string, folders: readonly string[]): boolean =>
  folders.some((folder) => path === folder || path.startsWith(`${folder}/`));

describe.each(PRESET_NAMES)('the preset %s', (name) => {
  const preset = PRESETS[name];

  test('is valid, and its hosts are ones that a rule can name', () => {
    expect(PresetSchema.parse(preset)).toEqual(preset);
    for (const host of [...preset.hosts.model, ...preset.hosts.unasked])
      expect([host, parseHostPattern(host)]).not.toContain(null);
  });

  test('signs in with files inside its state, and copies none of them as configuration', () => {
    for (const path of preset.signIn) {
      expect([path, isWithin(path, preset.state)]).toEqual([path, true]);
      expect([path, isWithin(path, preset.configuration)]).toEqual([path, false]);
      expect(SIGN_IN_FILES).toContain(path);
    }
    for (const path of preset.caches) expect([path, isWithin(path, preset.state)]).toEqual([path, false]);
  });

  test('makes a profile of three lines, which survives being stored', () => {
    const profile = checkProfile(`name: one\nagent: { preset: ${name} }\n`);
    expect(profile.agent).toMatchObject({
      preset: name,
      protocol: 'acp',
      command: preset.acp,
      state: preset.state,
      caches: preset.caches,
    });
    expect(profile.env).toEqual({ ...preset.env, ...preset.asking?.ask });
    expect(StoredProfileSchema.parse(JSON.parse(JSON.stringify(profile)))).toEqual(profile);
  });
});

describe('own fields', () => {
  const agent = (text: string): Profile['agent'] => checkProfile(`name: one\nagent: ${text}\n`).agent;

  test('override those of the preset', () => {
    expect(agent('{ preset: codex, protocol: command }')).toMatchObject({
      command: PRESETS.codex.command,
      prompt: 'argument',
    });
    const own = agent('{ preset: codex, protocol: command, command: [my-codex], state: [.mine] }');
    expect(own).toMatchObject({ command: ['my-codex'], prompt: 'stdin', state: ['.mine'] });
    const profile = checkProfile(
      'name: one\nagent: { preset: opencode }\nenv: { OPENCODE_DISABLE_AUTOUPDATE: "0", A: b }\n',
    );
    expect(profile.env).toMatchObject({ ...PRESETS.opencode.env, OPENCODE_DISABLE_AUTOUPDATE: '0', A: 'b' });
  });

  test('Codex asks whom `permissions` names, unless the profile chooses its mode', () => {
    const modeOf = (env: string) =>
      checkProfile(`name: one\nagent: { preset: codex }\n${env}`).env?.['INITIAL_AGENT_MODE'];
    expect(modeOf('env: { A: b }\n')).toBe('read-only');
    expect(modeOf('permissions: { rules: [{ kind: read, answer: allow }] }\n')).toBe('read-only');
    expect(modeOf('permissions: allow\n')).toBe('agent-full-access');
    expect(modeOf('snapshots: required\n')).toBe('agent-full-access');
    expect(modeOf('snapshots: required\npermissions: ask\n')).toBe('read-only');
    expect(modeOf('env: { INITIAL_AGENT_MODE: agent-full-access }\n')).toBe('agent-full-access');
  });

  test('OpenCode asks before it acts, unless everything is allowed or one program runs per turn', () => {
    const askingOf = (text: string) => checkProfile(`name: one\n${text}`).env?.['OPENCODE_PERMISSION'];
    expect(askingOf('agent: { preset: opencode }\n')).toBe('{"edit":"ask","bash":"ask"}');
    expect(askingOf('agent: { preset: opencode }\npermissions: allow\n')).toBeUndefined();
    expect(askingOf('agent: { preset: opencode, protocol: command }\n')).toBeUndefined();
  });

  test.each([
    ['{ preset: claude, stat: [.x] }', 'unknown key "stat" in "agent"; did you mean "state"?'],
    ['{ preset: claude, colour: red }', 'unknown key "colour" in "agent"; known keys: protocol, command'],
    ['{ preset: clade }', '"agent.preset" is "clade"'],
    ['{ preset: [claude] }', '"agent.preset" is a list'],
    ['{ preset: claude, protocol: handler, entry: a.py }', 'unknown key "preset" in "agent"'],
    ['{ preset: claude, protocol: shell }', '"agent.protocol" is "shell"'],
    ['{ protocol: command, command: [x], state: [../x] }', '"agent.state.0" is "../x"'],
    ['{ protocol: command, command: [x], caches: [~/.npm] }', '"agent.caches.0" is "~/.npm"'],
    ['{ state: [.x] }', '"agent.protocol" is missing'],
  ])('%s: %s', (text, expected) => {
    try {
      agent(text);
      expect.fail('it was accepted');
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      expect(error.code).toBe('profile_invalid');
      expect(error.why).toContain(expected);
    }
  });
});
