import { createHash } from 'node:crypto';
import type { ObservedObject } from '../port.ts';

export type Role = ObservedObject['role'];

export const LABEL = {
  home: 'dev.holdfast.home',
  session: 'dev.holdfast.session',
  role: 'dev.holdfast.role',
  /** The generation of the sandbox. The label's name is on existing containers. */
  generation: 'dev.holdfast.epoch',
  spec: 'dev.holdfast.spec',
  /** Random id of a volume: a later volume of the same name has another. */
  instance: 'dev.holdfast.birth',
} as const;

const ROLES: readonly Role[] = [
  'sidecar',
  'agent',
  'helper',
  'workspace',
  'home',
  'run',
  'control',
  'runtime',
  'code',
  'setup',
  'prepared',
];

export function isRole(value: string | undefined): value is Role {
  return (ROLES as readonly (string | undefined)[]).includes(value);
}

/** Names and labels of all objects of one home; two homes on one engine never collide. */
export class Naming {
  readonly homeId: string;
  readonly #prefix: string;

  constructor(homeId: string) {
    this.homeId = homeId;
    this.#prefix = `hf-${homeId
      .toLowerCase()
      .replace(/[^a-z0-9]/g, '')
      .slice(0, 8)}`;
  }

  container(sessionId: string, side: 'sidecar' | 'agent' | 'setup'): string {
    return `${this.#prefix}-${sessionId}-${side}`;
  }

  helper(token: string): string {
    return `${this.#prefix}-helper-${token}`;
  }

  egressProxy(token: string): string {
    return `${this.#prefix}-egress-${token}`;
  }

  sessionVolume(sessionId: string, role: 'workspace' | 'home' | 'run' | 'control'): string {
    return `${this.#prefix}-${sessionId}-${role}`;
  }

  preparedImage(setupId: string): { repository: string; tag: string } {
    return { repository: `${this.#prefix}/prepared`, tag: setupId };
  }

  runtimeVolume(hash: string): string {
    return `${this.#prefix}-runtime-${hash}`;
  }

  codeVolume(profile: string, version: number): string {
    // A profile's name may be longer than the name of a volume may be.
    const short = createHash('sha256').update(profile).digest('hex').slice(0, 16);
    return `${this.#prefix}-code-${short}-${version}`;
  }

  labels(
    role: Role,
    more: { session?: string; generation?: number; spec?: string } = {},
  ): Record<string, string> {
    return {
      [LABEL.home]: this.homeId,
      [LABEL.role]: role,
      ...(more.session === undefined ? {} : { [LABEL.session]: more.session }),
      ...(more.generation === undefined ? {} : { [LABEL.generation]: String(more.generation) }),
      ...(more.spec === undefined ? {} : { [LABEL.spec]: more.spec }),
    };
  }

  /** The `filters` parameter of a list or of the event stream. */
  filters(sessionId?: string, more: Readonly<Record<string, readonly string[]>> = {}): string {
    const label = [`${LABEL.home}=${this.homeId}`];
    if (sessionId !== undefined) label.push(`${LABEL.session}=${sessionId}`);
    return JSON.stringify({ ...more, label });
  }
}

/** Whether this is a name that we give to prepared images, of this home or of another. */
export function isPreparedImage(reference: string): boolean {
  return /^hf-[a-z0-9]{1,8}\/prepared:/.test(reference);
}
