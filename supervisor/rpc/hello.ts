import { realpathSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { PROTOCOL_VERSIONS } from '../../protocol/methods.ts';
import type { ClientInfo, Params, Result } from '../../protocol/methods.ts';

/** Who answers hello. */
export interface Identity {
  readonly supervisor: Result<'hello'>['supervisor'];
  /** Absolute path of the home. */
  readonly home: string;
  readonly capabilities: Readonly<Record<string, boolean>>;
}

/**
 * Settles the protocol version: the first of the client's that we speak. Errors: `version_mismatch` (with who we are in its
 * details, so that a newer client can ask us to make room), `invalid_state` for a client of another home.
 */
export function answerHello(identity: Identity, asked: Params<'hello'>): Result<'hello'> {
  const { home, supervisor, capabilities } = identity;
  if (asked.home !== undefined && !isSameDirectory(asked.home, home)) {
    throw new HoldfastError('invalid_state', 'The supervisor was not used', {
      why: `it looks after ${home} and not ${asked.home}`,
      next: 'check HOLDFAST_HOME',
    });
  }
  const spoken: readonly string[] = PROTOCOL_VERSIONS;
  const protocolVersion = asked.protocolVersions.find((version) => spoken.includes(version));
  if (protocolVersion === undefined) throw mismatch(identity, asked.client, asked.protocolVersions);
  return { protocolVersion, supervisor, home, capabilities: { ...capabilities } };
}

function mismatch(identity: Identity, client: ClientInfo, offered: readonly string[]): HoldfastError {
  const { name, version, build, builtAt } = identity.supervisor;
  return new HoldfastError(
    'version_mismatch',
    `${client.name} ${client.version} and the supervisor do not understand each other`,
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
    return false; // what cannot be found is not our home
  }
}
