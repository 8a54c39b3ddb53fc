import { HoldfastError } from '../../protocol/errors.ts';

/**
 * Places where tests make the supervisor die, fail or wait, named `<operation>.<step>`. The fault suites enumerate
 * this list, and a name that is not on it does not compile.
 */
export const FAILPOINTS = [
  'create.after-workspace',
  'create.after-row',
  'start.after-intent',
  'start.after-sidecar',
  'start.after-agent',
  'start.before-record',
  'start.after-home',
  'turn.after-queued',
  'turn.before-launch',
  'turn.after-launch',
  'turn.during-output',
  'content.before-event',
  'cut.before-step',
  'cut.during-step',
  'cut.after-step',
  'turn.before-end',
  'turn.after-end',
  'turn.before-forget',
  'agent.before-start',
  'agent.after-start',
  'agent.before-prompt',
  'agent.after-prompt',
  'agent.after-output',
  'agent.after-store',
  'agent.before-end',
  'terminal.after-intent',
  'terminal.after-launch',
  'terminal.before-end',
  'pause.after-intent',
  'pause.after-engine',
  'stop.after-intent',
  'stop.after-agent',
  'stop.after-removed',
  'delete.after-intent',
  'delete.after-sandbox',
  'delete.after-clear',
  'delete.after-workspace',
  'delete.before-row',
  'deploy.after-intent',
  'deploy.after-copy',
  'deploy.after-publish',
  'deploy.before-row',
  'setup.after-intent',
  'setup.after-clone',
  'setup.after-build',
  'setup.before-image',
  'setup.after-image',
  'setup.after-run',
  'setup.after-template',
  'setup.before-clear',
  'setup.after-end',
  'undeploy.after-intent',
  'undeploy.after-sessions',
  'handover.after-ack',
  'handover.before-release',
  'clean.after-intent',
  'clean.after-clear',
  'spare.after-sidecar',
  'spare.after-files',
  'seed.after-part',
  'seed.after-template',
  'seed.before-end',
  'gc.after-copy',
  'gc.after-publish',
  'gc.after-intent',
  'gc.after-pack',
  'snapshot.after-scan',
  'snapshot.after-publish',
  'snapshot.after-row',
  'scans.before-seal',
  'freeze.after-intent',
  'freeze.after-pause',
  'freeze.before-thaw',
  'turn.after-snapshot',
  'changes.after-snapshot',
  'changes.before-store',
  'delete.after-snapshot',
  'restore.after-intent',
  'restore.after-files',
  'restore.after-end',
  'fork.after-row',
  'fork.before-files',
  'fork.after-files',
  'import.after-contents',
  'import.after-publish',
  'import.after-row',
  'artifact.after-file',
  'artifact.after-row',
  'artifact.after-removal',
  'attachment.after-part',
  'attachment.before-commit',
  'attachment.after-commit',
  'attachment.after-place',
  'move.after-hold',
  'move.after-release',
  'move.after-activate',
  'move.after-finish',
  'move.after-withdrawal',
  'review.after-intent',
  'review.after-file',
] as const;
export type FailpointName = (typeof FAILPOINTS)[number];

export type FailpointAction =
  { readonly kind: 'kill' | 'error' | 'enospc' } | { readonly kind: 'delay'; readonly ms: number };
/** The action at one failpoint: at every hit, or only at the `hit`-th (from 1). */
export interface FailpointRule {
  readonly action: FailpointAction;
  readonly hit: number | null;
}

export const FAILPOINTS_VARIABLE = 'HOLDFAST_FAILPOINTS';

const known: ReadonlySet<string> = new Set(FAILPOINTS);
const RULE = /^(?<name>[^=]+)=(?<action>kill|error|enospc|delay:(?<ms>\d{1,7}))(?:@(?<hit>[1-9]\d{0,5}))?$/;

function isFailpoint(name: string): name is FailpointName {
  return known.has(name);
}

/**
 * Parses `name=kill|error|enospc|delay:MS[@N][;…]`. Errors: `invalid_params`, because with a mistyped name a fault
 * test would pass without its fault.
 */
export function parseFailpoints(text: string): ReadonlyMap<FailpointName, FailpointRule> {
  const rules = new Map<FailpointName, FailpointRule>();
  for (const part of text.split(';').map((one) => one.trim())) {
    if (part === '') continue;
    const { name, action, ms, hit } = RULE.exec(part)?.groups ?? {};
    if (name === undefined || action === undefined || !isFailpoint(name)) {
      throw new HoldfastError('invalid_params', `${FAILPOINTS_VARIABLE} cannot be parsed at "${part}"`, {
        why: name !== undefined && !isFailpoint(name) ? 'no failpoint has that name' : undefined,
        next: 'write name=kill|error|enospc|delay:MS[@N], several of them separated by ";"',
      });
    }
    rules.set(name, { action: actionOf(action, ms), hit: hit === undefined ? null : Number(hit) });
  }
  return rules;
}

function actionOf(action: string, ms: string | undefined): FailpointAction {
  switch (action) {
    case 'kill':
    case 'error':
    case 'enospc':
      return { kind: action };
    default:
      return { kind: 'delay', ms: Number(ms) };
  }
}

/** Kills this process. The signal may arrive a moment later, so the thread blocks until then. */
function die(): never {
  process.kill(process.pid, 'SIGKILL');
  const never = new Int32Array(new SharedArrayBuffer(4));
  for (;;) Atomics.wait(never, 0, 0);
}

function act(name: FailpointName, action: FailpointAction): Promise<void> | undefined {
  switch (action.kind) {
    case 'kill':
      return die();
    case 'error':
      throw new HoldfastError('internal', `Failed on purpose at ${name}`);
    case 'enospc':
      throw Object.assign(new Error(`ENOSPC: no space left on device, at ${name}`), {
        code: 'ENOSPC',
        errno: -28,
        syscall: 'write',
      });
    case 'delay': {
      const { ms } = action;
      return new Promise((resolve) => setTimeout(resolve, ms));
    }
  }
}

/** Counts hits and applies the rules; without rules a failpoint is a call that returns at once. */
export function createFailpoint(
  text: string | undefined,
): (name: FailpointName) => Promise<void> | undefined {
  const rules = parseFailpoints(text ?? '');
  if (rules.size === 0) return () => undefined;
  const hits = new Map<FailpointName, number>();
  return (name) => {
    const rule = rules.get(name);
    if (rule === undefined) return undefined;
    const hit = (hits.get(name) ?? 0) + 1;
    hits.set(name, hit);
    return rule.hit === null || rule.hit === hit ? act(name, rule.action) : undefined;
  };
}

/**
 * `await failpoint('stop.after-agent')`. Does nothing unless HOLDFAST_FAILPOINTS is set when the supervisor starts.
 * It is module-wide, because the environment of a process is too.
 */
export const failpoint = createFailpoint(process.env[FAILPOINTS_VARIABLE]);
