import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const FOLDER = join(import.meta.dirname, '../fixtures/tls');

export const TEST_CERTIFICATE_FILE = join(FOLDER, 'certificate.pem');

/**
 * A certificate, signed by itself, for `api.test`, `*.api.test` and 127.0.0.1, for tests that cannot make one. Nobody
 * else may trust it: its key is here for everybody to read.
 */
export const TEST_CERTIFICATE = {
  cert: readFileSync(TEST_CERTIFICATE_FILE, 'utf8'),
  key: readFileSync(join(FOLDER, 'key.pem'), 'utf8'),
} as const;
