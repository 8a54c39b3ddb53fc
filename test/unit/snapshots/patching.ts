import { tmpdir } from 'node:os';

/** The thread that compares lines, as it stands in the sources. */
export const THREAD = new URL('../../../supervisor/snapshots/patch/line-worker.ts', import.meta.url);

/** Git with nobody's settings, and in no repository. */
export const PLAIN_GIT = {
  PATH: process.env['PATH'],
  HOME: '/nonexistent',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CEILING_DIRECTORIES: tmpdir(),
};
