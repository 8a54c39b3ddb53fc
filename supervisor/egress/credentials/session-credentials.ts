import { type Credential, credentialEnvironment, credentialsOf } from '../../../protocol/credentials.ts';
import type { SecretStore, SecretValue } from '../../secrets/secret-store.ts';
import type { Profiles } from '../../store/profiles.ts';
import type { Sessions } from '../../store/sessions.ts';
import { GIT_SETTINGS } from '../environment.ts';

export interface SessionCredentialsOptions {
  readonly sessions: Sessions;
  readonly profiles: Profiles;
  readonly secrets: Pick<SecretStore, 'use'>;
}

/** The credentials of sessions: those that the deployed version of their profile names. */
export class SessionCredentials {
  readonly #options: SessionCredentialsOptions;

  constructor(options: SessionCredentialsOptions) {
    this.#options = options;
  }

  /** Empty for a deleted session. */
  of(sessionId: string): readonly Credential[] {
    const profile = this.#profileOf(sessionId);
    const config = profile === null ? null : this.#options.profiles.get(profile)?.config;
    return credentialsOf(config ?? {});
  }

  /** Variables of a process that starts now: base URLs and placeholders, never a value. */
  environment(sessionId: string): Record<string, string> {
    const credentials = this.of(sessionId);
    return credentials.length === 0 ? {} : credentialEnvironment(credentials, GIT_SETTINGS);
  }

  /** The secret of a credential as it is now; null without one that can be used. */
  secret(sessionId: string, { secret }: Credential): SecretValue | null {
    const profile = this.#profileOf(sessionId);
    return profile === null ? null : this.#options.secrets.use(profile, secret);
  }

  #profileOf(sessionId: string): string | null {
    const row = this.#options.sessions.get(sessionId);
    return row === null || row.status === 'deleted' ? null : row.profile;
  }
}
