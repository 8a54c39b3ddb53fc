import type { HomeSession, HomeState, LastMessage } from '../../../webview/home-messages.ts';

export const SESSION = 'ses-aaaaaaaaaaaaaaaa';
export const LOCAL_HOST = { name: 'local', title: 'This Machine', state: 'connected', why: null } as const;
export const PROFILE = { host: 'local', name: 'claude', input: 'prompt' } as const;

/** The page of a home that is in use. */
export function home(more: Partial<HomeState> = {}): HomeState {
  return {
    hosts: [LOCAL_HOST],
    isListed: true,
    profiles: [PROFILE, { host: 'local', name: 'counter', input: 'json' }],
    folders: [],
    images: null,
    secrets: null,
    ...more,
  };
}

/** One that was used earlier. */
export function card(more: Partial<HomeSession> = {}): HomeSession {
  return {
    id: SESSION,
    title: 'parser',
    profile: 'claude',
    host: 'local',
    need: 'earlier',
    reason: null,
    status: 'idle',
    prompt: 'The CSV parser loses the last row.',
    bytes: 12_000_000,
    lastActiveAt: '2026-11-20T10:00:00.000Z',
    seq: 1,
    ...more,
  };
}

export function words(more: Partial<LastMessage> = {}): LastMessage {
  return {
    words: 'The parser keeps the last row now, and there is a test for it.',
    asks: null,
    questions: [],
    moreQuestions: 0,
    isFailure: false,
    changedFiles: null,
    ...more,
  };
}

/** `count` sessions with ids of their own. */
export function cards(count: number, more: Partial<HomeSession> = {}): HomeSession[] {
  const letters = 'abcdefghijklmnopqrstuvwxyz';
  return Array.from({ length: count }, (_, n) =>
    card({
      id: `ses-${'d'.repeat(14)}${letters.charAt(Math.floor(n / 26) % 26)}${letters.charAt(n % 26)}`,
      title: `task ${n + 1}`,
      lastActiveAt: new Date(Date.UTC(2026, 9, 1) - n * 60_000).toISOString(),
      ...more,
    }),
  );
}
