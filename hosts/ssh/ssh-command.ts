import type { Destination } from '../base/destination.ts';

/**
 * Options that override the person's configuration: one connection of our own, without forwardings, without a terminal,
 * and nothing of the configuration runs on either side. Everything else (identities, jump hosts, known hosts, proxies) is
 * as ssh has it.
 */
const OPTIONS: Readonly<Record<string, string>> = {
  ControlMaster: 'no',
  ControlPath: 'none',
  ClearAllForwardings: 'yes',
  ForwardAgent: 'no',
  ForwardX11: 'no',
  PermitLocalCommand: 'no',
  RemoteCommand: 'none',
  RequestTTY: 'no',
  EscapeChar: 'none',
  Tunnel: 'no',
  ServerAliveInterval: '15',
  ServerAliveCountMax: '3',
};

/** The arguments of ssh for running `command` on a host. `command` goes to the login shell there, whichever it is. */
export function sshArguments(destination: Destination, command: string): string[] {
  return [
    '-T',
    ...Object.entries(OPTIONS).flatMap(([name, value]) => ['-o', `${name}=${value}`]),
    ...(destination.user === null ? [] : ['-l', destination.user]),
    ...(destination.port === null ? [] : ['-p', String(destination.port)]),
    '--',
    destination.host,
    command,
  ];
}

export interface AskpassOptions {
  /** A script that ssh runs for every question: a passphrase, a one-time code, a host key. */
  readonly program: string;
  readonly environment: Readonly<Record<string, string>>;
}

/** The environment of ssh: questions go to our program, and never to a terminal that somebody else reads. */
export function sshEnvironment(base: NodeJS.ProcessEnv, askpass: AskpassOptions): NodeJS.ProcessEnv {
  return {
    ...base,
    ...askpass.environment,
    SSH_ASKPASS: askpass.program,
    SSH_ASKPASS_REQUIRE: 'force',
    // Versions before 8.4 ask the program only where a display is named.
    DISPLAY: base['DISPLAY'] ?? ':0',
  };
}
