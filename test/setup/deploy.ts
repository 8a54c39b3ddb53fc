import { randomUUID } from 'node:crypto';
import type { DEPLOY_METHODS } from '../../protocol/deploy.ts';
import type { DeployResult } from '../../protocol/deploy-result.ts';
import type { Params, Result } from '../../protocol/methods.ts';
import { type DeployConnection, deployProject } from '../../project/deploy.ts';

type DeployMethod = keyof typeof DEPLOY_METHODS;

/** Deploys a project over a connection as the command line does, in one attempt. */
export function deployOver(
  connection: DeployConnection,
  directory: string,
  opId: string = randomUUID(),
): Promise<DeployResult> {
  const agree = { onDestinations: () => Promise.resolve() };
  return deployProject(connection, { directory, home: '/nonexistent', opId, attempts: 1, ...agree });
}

/** The same for the home of a test. */
export function deploy(
  home: {
    call<M extends DeployMethod>(method: M, params: Params<M>, bytes?: Uint8Array): Promise<Result<M>>;
  },
  directory: string,
  opId?: string,
): Promise<DeployResult> {
  return deployOver(
    { call: (method, params, { bytes }) => home.call(method, params, bytes) },
    directory,
    opId,
  );
}
