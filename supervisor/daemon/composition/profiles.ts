import type { Log } from '../../base/log.ts';
import { ProfileService } from '../../profiles/service.ts';
import type { StorageLayer } from './storage.ts';
import type { NetworkLayer } from './network.ts';
import type { SessionLayer } from './sessions.ts';

/** Deployed profiles, with the sessions that go when one is undeployed. */
export function createProfiles(below: StorageLayer & NetworkLayer & SessionLayer, log: Log) {
  const { sessions, sessionService, policies, secrets } = below;
  return new ProfileService({
    ...below,
    ...below.ofProfiles,
    forgetProfile: (profile) => {
      policies.forgetProfile(profile);
      secrets.forgetProfile(profile);
    },
    secretScope: (profile, name) => {
      const secret = secrets.describe(profile, name);
      if (secret?.state !== 'usable') return null;
      return secret.profile === null ? 'all' : 'profile';
    },
    sessions: {
      sessionsOf: (profile) => sessionService.sessionsOf(profile),
      deleteSession: async (sessionId) => {
        const row = sessions.get(sessionId);
        if (row !== null && row.status !== 'deleted') await sessionService.delete(row, true);
      },
    },
    log: log.child('profiles'),
  });
}
