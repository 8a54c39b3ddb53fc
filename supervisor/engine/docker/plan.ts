import type { SandboxContainer } from './observation.ts';

export interface DesiredSandbox {
  /** Of the agent; a sidecar serves any. */
  readonly generation: number;
  readonly sidecarHash: string;
  readonly agentHash: string;
  /** False: only the sidecar is wanted, and an agent that lives stays as it is. */
  readonly wantsAgent: boolean;
}

export interface SandboxPlan {
  /** Containers that have to go first. */
  readonly remove: readonly string[];
  readonly sidecar: { readonly do: 'keep'; readonly id: string } | { readonly do: 'create' };
  readonly agent:
    | { readonly do: 'keep' | 'thaw'; readonly id: string }
    | { readonly do: 'create' }
    | { readonly do: 'leave' };
  /** An agent that stays and whose namespace a new sidecar joins, so that nothing it runs is lost. */
  readonly namespaceOwner: string | null;
}

/** What has to happen so that a session's sandbox stands, from what there is. Pure. */
export function planSandbox(present: readonly SandboxContainer[], wanted: DesiredSandbox): SandboxPlan {
  const sidecars = present.filter(({ role }) => role === 'sidecar');
  const agents = present.filter(({ role }) => role === 'agent');

  const keptAgent = agents.find(
    (one) =>
      (one.state === 'running' || one.state === 'paused') &&
      (!wanted.wantsAgent || (one.generation === wanted.generation && one.specHash === wanted.agentHash)),
  );
  const keptSidecar = sidecars.find((one) => one.state === 'running' && one.specHash === wanted.sidecarHash);
  // Without a wish for the agent, a dead one stays too: how it ended is still to be read.
  const goingAgents = agents.filter((one) => one !== keptAgent && wanted.wantsAgent);
  const goingSidecars = sidecars.filter((one) => one !== keptSidecar);

  return {
    remove: [...goingAgents, ...goingSidecars].map(({ id }) => id),
    sidecar: keptSidecar === undefined ? { do: 'create' } : { do: 'keep', id: keptSidecar.id },
    agent: planAgent(keptAgent, wanted.wantsAgent),
    namespaceOwner: keptAgent?.id ?? null,
  };
}

function planAgent(kept: SandboxContainer | undefined, wanted: boolean): SandboxPlan['agent'] {
  if (!wanted) return { do: 'leave' };
  if (kept === undefined) return { do: 'create' };
  return { do: kept.state === 'paused' ? 'thaw' : 'keep', id: kept.id };
}
