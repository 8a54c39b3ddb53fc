import type { ObservedObject, ObservedSandbox, ObservedContainer, ContainerState } from '../port.ts';
import type { Containers } from './containers.ts';
import { LABEL, isRole } from './labels.ts';
import type { ContainerSummary } from './replies.ts';

/** A listed container, with its labels parsed. */
export interface SandboxContainer {
  readonly id: string;
  readonly role: string | undefined;
  readonly state: ContainerState;
  readonly generation: number;
  readonly specHash: string;
}

export function toSandboxContainer(container: ContainerSummary): SandboxContainer {
  const labels = container.Labels ?? {};
  const generation = Number.parseInt(labels[LABEL.generation] ?? '', 10);
  return {
    id: container.Id,
    role: labels[LABEL.role],
    state: containerState(container.State),
    generation: Number.isSafeInteger(generation) ? generation : -1,
    specHash: labels[LABEL.spec] ?? '',
  };
}

export function containerState(state: string): ContainerState {
  switch (state) {
    case 'created':
    case 'running':
    case 'paused':
    case 'exited':
    case 'removing':
      return state;
    case 'restarting':
      return 'running';
    default:
      return 'lost';
  }
}

export async function observeSession(containers: Containers, sessionId: string): Promise<ObservedSandbox> {
  const listed = await containers.list(sessionId);
  const side = async (role: 'sidecar' | 'agent'): Promise<ObservedContainer | null> => {
    const container = listed.find((one) => one.Labels?.[LABEL.role] === role);
    return container === undefined ? null : observedSide(containers, container);
  };
  const [sidecar, agent] = await Promise.all([side('sidecar'), side('agent')]);
  return { sessionId, sidecar, agent };
}

/** `namesInUse`: names of the containers that this process uses now, which are left out. */
export async function observeObjects(
  containers: Pick<Containers, 'list' | 'listVolumes' | 'inspect'>,
  namesInUse: () => ReadonlySet<string>,
): Promise<ObservedObject[]> {
  const before = [...namesInUse()];
  const [listed, volumes] = await Promise.all([containers.list(), containers.listVolumes()]);
  // A container may have been created, or may have ended, while the engine made its list.
  const busy = new Set([...before, ...namesInUse()]);
  const objects: Promise<ObservedObject>[] = [];
  for (const container of listed) {
    const name = (container.Names[0] ?? '').replace(/^\//, '');
    const role = container.Labels?.[LABEL.role];
    // A person may run a prepared image by hand: the container has its labels, and is none of ours.
    if (busy.has(name) || !isRole(role) || role === 'prepared') continue;
    const sided = role === 'sidecar' || role === 'agent';
    objects.push(
      (async () => ({
        kind: 'container',
        objectId: container.Id,
        name,
        sessionId: container.Labels?.[LABEL.session] ?? null,
        role,
        container: sided ? await observedSide(containers, container) : null,
      }))(),
    );
  }
  for (const { name, labels } of volumes) {
    const role = labels[LABEL.role];
    if (!isRole(role)) continue;
    const sessionId = labels[LABEL.session] ?? null;
    objects.push(Promise.resolve({ kind: 'volume', objectId: name, name, sessionId, role, container: null }));
  }
  return Promise.all(objects);
}

export async function observeImages(containers: Containers): Promise<ObservedObject[]> {
  const images = await containers.listPreparedImages();
  return images.map(({ reference, setupId }) => {
    const named = { objectId: reference, name: reference, sessionId: setupId };
    return { kind: 'image', ...named, role: 'prepared', container: null };
  });
}

async function observedSide(
  containers: Pick<Containers, 'inspect'>,
  container: ContainerSummary,
): Promise<ObservedContainer> {
  const { id, state, generation, specHash } = toSandboxContainer(container);
  const side = { objectId: id, state, generation, specHash, exitCode: null, oomKilled: false };
  if (state !== 'exited' && state !== 'lost') return side;
  // Only an inspection tells how it exited.
  const facts = await containers.inspect(id);
  if (facts === null) return { ...side, state: 'lost' };
  return { ...side, exitCode: facts.State.ExitCode, oomKilled: facts.State.OOMKilled };
}
