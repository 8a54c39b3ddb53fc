import Docker from 'dockerode';

const docker = new Docker();

/** The engine's id of one of a session's containers, which must be up. */
export async function containerOf(session: string, role: 'agent' | 'sidecar'): Promise<string> {
  const filters = { label: [`dev.holdfast.session=${session}`, `dev.holdfast.role=${role}`] };
  const id = (await docker.listContainers({ filters }))[0]?.Id;
  if (id === undefined) throw new Error(`there is no ${role} container`);
  return id;
}
