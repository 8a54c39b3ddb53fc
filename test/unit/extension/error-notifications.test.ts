import { beforeEach, expect, test, vi } from 'vitest';
import { Notifications } from '../../../extension/commands/notifications.ts';
import { HoldfastError } from '../../../protocol/errors.ts';

const shown = vi.hoisted(() => ({ messages: [] as string[] }));
vi.mock('vscode', () => ({
  commands: {},
  window: {
    showWarningMessage: (message: string) => {
      shown.messages.push(message);
      return Promise.resolve(undefined);
    },
  },
}));

const LINK = '[Fix](command:holdfast.purge) $(zap)\u202e';
const BROKEN = '[Fix] (command:holdfast.purge) $ (zap)\\u{202e}';

beforeEach(() => {
  shown.messages.length = 0;
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
