import type { SandboxContainer } from './observation.ts';

export interface DesiredSandbox {
  /** The agent's generation; a sidecar serves any. */
  readonly generation: number;
  readonly sidecarHash: string;
  readonly agentHash: string;
  /** False: only the sidecar is wanted, and a running agent stays as it is. */
  readonly wantsAgent: boolean;
}

export interface SandboxPlan {
  /** Containers to remove first. */
  readonly remove: readonly string[];
  readonly sidecar: { readonly do: 'keep'; readonly id: string } | { readonly do: 'create' };
  readonly agent:
    | { readonly do: 'keep' | 'unpause'; readonly id: string }
    | { readonly do: 'create' }
    | { readonly do: 'leave' };
  /** The agent whose network namespace a new sidecar joins, so that its processes survive. */
  readonly namespaceOwner: string | null;
}

/** The steps from the containers that exist to the desired sandbox. Pure. */
export function planSandbox(present: readonly SandboxContainer[], wanted: DesiredSandbox): SandboxPlan {
  const sidecars = present.filter(({ role }) => role === 'sidecar');
  const agents = present.filter(({ role }) => role === 'agent');

  const keptAgent = agents.find(
    (one) =>
      (one.state === 'running' || one.state === 'paused') &&
      (!wanted.wantsAgent || (one.generation === wanted.generation && one.specHash === wanted.agentHash)),
  );
  const keptSidecar = sidecars.find((one) => one.state === 'running' && one.specHash === wanted.sidecarHash);
  // If no agent is wanted, a dead one is kept: its exit code is still to be read.
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
  return { do: kept.state === 'paused' ? 'unpause' : 'keep', id: kept.id };
}
