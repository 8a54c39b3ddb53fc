import { permissionsOf } from '../profile.ts';
import { PRESETS } from './index.ts';
import type { Preset } from './preset.ts';
import { isPresetName, PRESET_NAMES } from './names.ts';
import { TURN_KINDS, type TurnKind, findTurnKind } from '../turn-kinds.ts';

/** How a preset runs its agent if the profile does not say: as a conversation. */
const USUAL_PROTOCOL: TurnKind = 'acp';
/** The validation reports its name. */
const UNKNOWN_KIND = { runs: null, presetCommand: null };

/**
 * Fills in what `agent.preset` stands for. Takes and returns the content of `holdfast.yaml` before it is validated: own
 * fields override those of the preset, and what is wrong in them stays for the validation to report.
 */
export function applyPreset(value: unknown): unknown {
  if (!isMapping(value) || !isMapping(value['agent'])) return value;
  const { agent, env, credentials } = value;
  const name = agent['preset'];
  if (name === undefined) return value;
  // With an unknown name, that name is what has to be reported, and not what is missing without it.
  const preset = PRESETS[isPresetName(name) ? name : PRESET_NAMES[0]];
  const { protocol = USUAL_PROTOCOL } = agent;
  const kind = findTurnKind(protocol);
  const { runs, presetCommand } = kind === undefined ? UNKNOWN_KIND : TURN_KINDS[kind];
  const prompt = runs === 'program' ? { prompt: 'argument' } : {};
  const usual = presetCommand === null ? {} : { command: preset[presetCommand], ...prompt };
  // A command of one's own gets its prompt in its own way.
  const asking = runs === 'conversation' ? preset.asking?.[asks(value) ? 'ask' : 'allow'] : {};
  const started = agent['command'] === undefined ? usual : {};
  return {
    ...value,
    agent: { state: preset.state, caches: preset.caches, ...started, ...agent, protocol },
    ...(env === undefined || isMapping(env)
      ? {
          env: {
            ...preset.env,
            ...asking,
            ...(isNamed(preset, credentials) ? preset.credential.env : {}),
            ...env,
          },
        }
      : {}),
  };
}

function isNamed({ credential }: Preset, credentials: unknown): boolean {
  const isOne = (entry: unknown): boolean =>
    entry === credential.name || (isMapping(entry) && entry['preset'] === credential.name);
  return Array.isArray(credentials) && credentials.some(isOne);
}

/** Whether some question of the agent may need a person. */
function asks({ permissions, snapshots }: Record<string, unknown>): boolean {
  return permissionsOf({ permissions, snapshots }) !== 'allow';
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
