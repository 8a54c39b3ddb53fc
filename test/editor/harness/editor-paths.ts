import { join } from 'node:path';

/** What every VS Code is given of this checkout. */
export interface Checkout {
  readonly root: string;
  /** What runs in the extension host, bundled. */
  readonly suite: string;
  readonly vsix: string;
  /** A folder of extensions in which the .vsix is installed. */
  readonly extensions: string;
}

/** Where the pieces of a test of the editor are; the global set-up has made sure of all of them. */
export interface EditorPaths extends Checkout {
  readonly codeServer: string;
  readonly chromium: string;
  /** Pictures, kept for people to look at. */
  readonly screenshots: string;
}

const ROOT = join(import.meta.dirname, '../../..');

export function checkout(): Checkout {
  return {
    root: ROOT,
    suite: join(ROOT, 'dist/test/suite.cjs'),
    vsix: join(ROOT, 'dist/holdfast.vsix'),
    extensions: join(ROOT, 'dist/test/extensions'),
  };
}

export function editorPaths(): EditorPaths {
  return {
    ...checkout(),
    codeServer: named('HOLDFAST_TEST_CODE_SERVER'),
    chromium: named('HOLDFAST_TEST_CHROMIUM'),
    screenshots: join(ROOT, 'dist/test/shots'),
  };
}

function named(variable: string): string {
  const value = process.env[variable];
  if (value === undefined)
    throw new Error(`${variable} is not set: run through "npx vitest run --project editor"`);
  return value;
}
