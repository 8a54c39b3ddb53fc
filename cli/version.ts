import type { ClientInfo } from '../protocol/methods.ts';

/** How this program identifies itself in `hello`. */
export function clientInfo(): ClientInfo {
  return {
    name: 'holdfast-cli',
    version: __VERSION__,
    build: __BUILD_ID__,
    builtAt: Date.parse(__BUILD_TIME__),
  };
}

export function versionLine(): string {
  return `holdfast ${__VERSION__} (build ${__BUILD_ID__})`;
}
