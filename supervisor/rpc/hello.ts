import { realpathSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { PROTOCOL_VERSIONS } from '../../protocol/methods.ts';
import type { ClientInfo, Params, Result } from '../../protocol/methods.ts';

/** The supervisor that answers hello. */
export interface Identity {
  readonly supervisor: Result<'hello'>['supervisor'];
  /** Absolute path of the home. */
  readonly home: string;
  readonly homeId: string;
  readonly capabilities: Readonly<Record<string, boolean>>;
}

/**
 * Agrees on the protocol version: the first of the client's that we support. Errors: `version_mismatch` (its details name this
 * supervisor, so that a newer client can ask for a handover), `invalid_state` for a client of another home.
 */
export function answerHello(identity: Identity, asked: Params<'hello'>): Result<'hello'> {
  const { home, homeId, supervisor, capabilities } = identity;
  if (asked.home !== undefined && !isSameDirectory(asked.home, home)) {
    throw new HoldfastError('invalid_state', 'The supervisor was not used', {
      why: `it serves ${home} and not ${asked.home}`,
      next: 'check HOLDFAST_HOME',
    });
  }
  const supported: readonly string[] = PROTOCOL_VERSIONS;
  const protocolVersion = asked.protocolVersions.find((version) => supported.includes(version));
  if (protocolVersion === undefined) throw mismatch(identity, asked.client, asked.protocolVersions);
  return { protocolVersion, supervisor, home, homeId, capabilities: { ...capabilities } };
}

function mismatch(identity: Identity, client: ClientInfo, offered: readonly string[]): HoldfastError {
  const { name, version, build, builtAt } = identity.supervisor;
  return new HoldfastError(
    'version_mismatch',
    `${client.name} ${client.version} and the supervisor have no protocol version in common`,
    {
      why: `the supervisor ${version} speaks protocol ${PROTOCOL_VERSIONS.join(', ')} and the client ${offered.join(', ')}`,
      next: 'use the newest holdfast for both',
      details: { supervisor: { name, version, build, builtAt } },
    },
  );
}

function isSameDirectory(asked: string, home: string): boolean {
  if (asked === home) return true;
  try {
    return realpathSync(asked) === realpathSync(home);
  } catch {
    return false; // a path that does not exist is not our home
  }
}
