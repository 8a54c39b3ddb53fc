import { z } from 'zod';

/**
 * How the turns of a kind run, which also says what its agent is in `holdfast.yaml` (`AgentSchema`). `worker`: a file with a handler, in
 * a process that stays warm. `program`: a program for each turn. `conversation`: a program that stays and takes prompts. The
 * supervisor has a driver for each (`supervisor/agents/drivers.ts`).
 */
export type Runner = 'worker' | 'program' | 'conversation';

interface TurnKindFacts {
  /** What the docs and the schema of `holdfast.yaml` say of it, after its name. */
  readonly about: string;
  readonly runs: Runner;
  /** What a person gives it: a prompt, or a JSON value. */
  readonly input: 'prompt' | 'json';
  /** Which command of a preset starts it; null: there are no presets for it. */
  readonly presetCommand: 'acp' | 'command' | null;
}

/** Every kind of turn, by the name that `agent.protocol`, events, rows and manifests have for it. */
export const TURN_KINDS = {
  handler: {
    about: 'calls a Python or Node function for each turn.',
    runs: 'worker',
    input: 'json',
    presetCommand: null,
  },
  command: {
    about: 'runs a program for each turn.',
    runs: 'program',
    input: 'prompt',
    presetCommand: 'command',
  },
  acp: {
    about: 'a program that stays and answers many prompts over the Agent Client Protocol.',
    runs: 'conversation',
    input: 'prompt',
    presetCommand: 'acp',
  },
} as const satisfies Readonly<Record<string, TurnKindFacts>>;

export type TurnKind = keyof typeof TURN_KINDS;
export type RunnerOf<K extends TurnKind> = (typeof TURN_KINDS)[K]['runs'];
/** The kinds that run in one way. */
export type KindsThatRun<R extends Runner> = {
  [K in TurnKind]: RunnerOf<K> extends R ? K : never;
}[TurnKind];

/** In the order of the table, which has at least one. */
export const TURN_KIND_NAMES = Object.keys(TURN_KINDS) as [TurnKind, ...TurnKind[]];
export const TurnKindSchema = z.enum(TURN_KIND_NAMES);

/** The kind of that name; undefined for one that this version does not know. */
export function findTurnKind(name: unknown): TurnKind | undefined {
  return TURN_KIND_NAMES.find((kind) => kind === name);
}

/** `protocol: NAME` of the kinds that run in one way, for people. */
export function protocolsThatRun(runner: Runner): string {
  const names = TURN_KIND_NAMES.filter((kind) => TURN_KINDS[kind].runs === runner);
  return names.map((name) => `\`protocol: ${name}\``).join(' or ');
}

/** What a person gives to an agent of the kind; a prompt, if the kind is unknown. */
export function inputOfKind(kind: string | undefined): 'prompt' | 'json' {
  const known = findTurnKind(kind);
  return known === undefined ? 'prompt' : TURN_KINDS[known].input;
}

/** Whether an agent runs in one of the ways. */
export function runsAs<A extends { readonly protocol: TurnKind }, R extends Runner>(
  agent: A | undefined,
  runner: R,
): agent is Extract<A, { readonly protocol: KindsThatRun<R> }> {
  return agent !== undefined && TURN_KINDS[agent.protocol].runs === runner;
}
