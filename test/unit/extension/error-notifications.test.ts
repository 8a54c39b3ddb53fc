import { beforeEach, expect, test, vi } from 'vitest';
import { Notifications } from '../../../extension/commands/notifications.ts';
import { HoldfastError } from '../../../protocol/errors.ts';

const shown = vi.hoisted(() => ({
  messages: [] as string[],
  buttons: [] as string[][],
  choice: undefined as string | undefined,
  run: [] as unknown[][],
}));
vi.mock('vscode', () => ({
  commands: { executeCommand: (...of: unknown[]) => void shown.run.push(of) },
  window: {
    showWarningMessage: (message: string, ...buttons: string[]) => {
      shown.messages.push(message);
      shown.buttons.push(buttons);
      return Promise.resolve(shown.choice);
    },
  },
}));

const LINK = '[Fix](command:holdfast.purge) $(zap)\u202e';
const BROKEN = '[Fix] (command:holdfast.purge) $ (zap)\\u{202e}';

beforeEach(() => {
  for (const list of [shown.messages, shown.buttons, shown.run]) list.length = 0;
  shown.choice = undefined;
});

function notifications(): Notifications {
  return new Notifications({ error: () => undefined } as unknown as ConstructorParameters<
    typeof Notifications
  >[0]);
}

test('no part of an error that a host sent becomes a link', () => {
  notifications().showError(new HoldfastError('internal', LINK, { why: LINK, next: LINK }));
  expect(shown.messages).toEqual([`${BROKEN}: ${BROKEN}. ${BROKEN}.`]);
});

test('nor does what a host says about its engine', () => {
  notifications().showUnavailable({
    kind: 'engineDown',
    engine: { reachable: false, why: LINK, next: LINK },
  } as unknown as Parameters<Notifications['showUnavailable']>[0]);
  expect(shown.messages).toEqual([`Docker is not running (${BROKEN}). ${BROKEN}.`]);
});

test('a session that has moved is opened where it is now', async () => {
  shown.choice = 'Open It There';
  const there = 'ses-bbbbbbbbbbbbbbbb';
  const moved = (session: unknown): HoldfastError =>
    new HoldfastError('not_found', 'Session mine is not here any more', {
      details: { movedTo: { home: 'h', name: 'far', session: session as string } },
    });
  notifications().showError(moved(there));
  await Promise.resolve();
  expect(shown.buttons[0]).toContain('Open It There');
  expect(shown.run).toEqual([['holdfast.openWorkspace', there]]);
  // What a host says is an id of a session, or nothing.
  notifications().showError(moved('file:///etc/passwd'));
  notifications().showError(moved({ scheme: 'command' }));
  expect(shown.buttons.slice(1).flat()).not.toContain('Open It There');
});
