import type { Log } from '../../base/log.ts';
import { ProfileService } from '../../profiles/service.ts';
import type { ResumesOptions } from '../../sessions/session-resume.ts';
import { seedWorkspace } from '../../workspace/seeding.ts';
import type { Program } from '../program.ts';
import type { StorageLayer } from './storage.ts';
import type { NetworkLayer } from './network.ts';
import type { SessionLayer } from './sessions.ts';

/** A clone of now, where workspaces of the profile begin with one: its branch can have moved on. */
export async function renewRepository(
  { profiles }: Pick<StorageLayer, 'profiles'>,
  profileService: ProfileService,
  profile: string,
  { signal, onProgress }: Parameters<ResumesOptions['renewTemplate']>[1],
): Promise<void> {
  if (profiles.get(profile)?.config.workspace?.repository === undefined) return;
  await profileService.runSetup(profile, {
    reportProgress: (stage, done, of, unit) =>
      onProgress?.({ stage, done: done ?? null, of: of ?? null, unit: unit ?? null }),
    onOutput: () => undefined,
    signal: signal ?? new AbortController().signal,
  });
}

/** Deployed profiles, with the sessions that go when one is undeployed. */
export function createProfiles(
  below: StorageLayer & NetworkLayer & SessionLayer,
  program: Program,
  log: Log,
) {
  const { sessions, sessionService, policies, secrets } = below;
  return new ProfileService({
    ...below,
    forgetProfile: (profile) => {
      policies.forgetProfile(profile);
      secrets.forgetProfile(profile);
    },
    sessions: {
      sessionsOf: (profile) => sessionService.sessionsOf(profile),
      deleteSession: async (sessionId) => {
        const row = sessions.get(sessionId);
        if (row !== null && row.status !== 'deleted') await sessionService.delete(row, true);
      },
    },
    fillWorkspace: (sandboxId, items) => seedWorkspace((id) => below.engine.dial(id), sandboxId, items),
    log: log.child('profiles'),
    defaultImage: program.agentImage,
  });
}
