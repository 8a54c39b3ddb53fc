import type { ProfileRow } from '../store/profiles.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { Ids } from '../base/ids.ts';
import type { Engine } from '../engine/port.ts';
import { sandboxOwner } from '../engine/sandbox-owner.ts';

export interface NewSessionRowsOptions {
  readonly sessions: Pick<Sessions, 'allocateUid'>;
  readonly engine: Pick<Engine, 'capabilities'>;
  readonly ids: Ids;
  /** The name of the account that the supervisor runs as. */
  readonly account: string;
  /** ms since 1970. */
  readonly now: () => number;
}

/** The rows that new sessions begin as. */
export class NewSessionRows {
  readonly #options: NewSessionRowsOptions;

  constructor(options: NewSessionRowsOptions) {
    this.#options = options;
  }

  /** The row of a new session. Store it, or an intent with its uid, in the same transaction: the uid is not reserved. */
  create(profile: ProfileRow, name: string | undefined, throwaway: boolean): SessionRow {
    const { engine, ids, sessions } = this.#options;
    const id = ids.next('ses');
    return {
      ...UNMARKED,
      ...this.#times(),
      id,
      name: name ?? id,
      profile: profile.name,
      status: 'created',
      persistent: profile.config.persistence === 'persistent',
      throwaway,
      backing:
        profile.config.workspace?.backing ?? (engine.capabilities().localPaths ? 'directory' : 'volume'),
      ...sandboxOwner(engine, () => sessions.allocateUid()),
      lineage: id,
      origin: null,
      began: 'new',
      author: this.#options.account,
    };
  }

  /** The row of a session that takes over what was made ahead for `spare`. */
  adopt(spare: SessionRow, name: string | undefined, throwaway: boolean): SessionRow {
    return { ...spare, ...this.#times(), name: name ?? spare.id, throwaway };
  }

  #times() {
    const at = this.#options.now();
    return { createdAt: at, lastActiveAt: at, statusSince: at };
  }
}

/** Initial values of a row. */
const UNMARKED = {
  generation: 0,
  homeGeneration: 0,
  codeVersion: null,
  image: null,
  expiresAt: null,
  deletedAt: null,
  pinned: false,
  starred: false,
  archived: false,
  tags: [],
  model: null,
  about: null,
  workspaceBytes: null,
} satisfies Partial<SessionRow>;
