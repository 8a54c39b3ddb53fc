export const PRESET_NAMES = ['claude', 'codex', 'gemini', 'opencode', 'qwen'] as const;
export type PresetName = (typeof PRESET_NAMES)[number];

export function isPresetName(value: unknown): value is PresetName {
  return PRESET_NAMES.some((name) => name === value);
}
