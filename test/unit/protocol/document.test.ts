import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ERROR_CODES } from '../../../protocol/errors.ts';
import { CLIENT_NOTIFICATIONS, METHODS, NOTIFICATIONS } from '../../../protocol/methods.ts';

const text = readFileSync(join(import.meta.dirname, '../../../docs/protocol.md'), 'utf8');

test('docs/protocol.md names every method, notification and error code', () => {
  for (const name of [
    ...Object.keys(METHODS),
    ...Object.keys(NOTIFICATIONS),
    ...Object.keys(CLIENT_NOTIFICATIONS),
  ]) {
    expect(text).toContain(`\`${name}\``);
  }
  for (const [code, number] of Object.entries(ERROR_CODES)) expect(text).toContain(`\`${code}\` −${-number}`);
});
