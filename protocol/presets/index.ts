import { claude } from './claude.ts';
import { codex } from './codex.ts';
import { gemini } from './gemini.ts';
import type { PresetName } from './names.ts';
import { opencode } from './opencode.ts';
import type { Preset } from './preset.ts';
import { qwen } from './qwen.ts';

export const PRESETS: Readonly<Record<PresetName, Preset>> = { claude, codex, gemini, opencode, qwen };

/**
 * The sign-in files of all agents that we know, as paths below HOME. They apply to every session, because an agent can
 * start another one.
 */
export const SIGN_IN_FILES: readonly string[] = [
  ...new Set(Object.values(PRESETS).flatMap(({ signIn }) => signIn)),
];
