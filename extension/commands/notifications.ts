import { commands, window } from 'vscode';
import type { LogOutputChannel } from 'vscode';
import type { HoldfastError } from '../../protocol/errors.ts';
import type { ConnectionState } from '../connection/state.ts';

const SHOW_LOG = 'Show Log';
const TRY_AGAIN = 'Try Again';
const BUILD_IMAGES = 'Build Images';

/** What a person is told: one notification at a time of each kind, each with its next step, all of it in the log too. */
export class Notifications {
  readonly #log: LogOutputChannel;
  readonly #shown = new Set<string>();

  constructor(log: LogOutputChannel) {
    this.#log = log;
  }

  showError(error: HoldfastError): void {
    this.#log.error(`${error.code}: ${error.sentence}`, error.cause ?? '');
    this.#tell(sentences(error), {
      ...(lacksOwnImage(error) ? { [BUILD_IMAGES]: 'holdfast.buildImages' } : {}),
      [SHOW_LOG]: 'holdfast.showLog',
    });
  }

  /** Why the state of the moment does not allow what was asked for. */
  showUnavailable(state: ConnectionState): void {
    switch (state.kind) {
      case 'engineDown': {
        const { why, next } = state.engine;
        this.#tell(`Docker is not running${why === null ? '' : ` (${why})`}. ${next ?? 'Start it'}.`, {
          [TRY_AGAIN]: 'holdfast.checkEngine',
        });
        return;
      }
      case 'noSupervisor':
        this.#tell(sentences(state.error), {
          [TRY_AGAIN]: 'holdfast.connect',
          [SHOW_LOG]: 'holdfast.showLog',
        });
        return;
      case 'unused':
      case 'connecting':
      case 'connected':
        this.#tell('The supervisor is not there yet.', { [SHOW_LOG]: 'holdfast.showLog' });
    }
  }

  #tell(message: string, actions: Readonly<Record<string, string>>): void {
    if (this.#shown.has(message)) return;
    this.#shown.add(message);
    void window.showWarningMessage(message, ...Object.keys(actions)).then((choice) => {
      this.#shown.delete(message);
      const command = choice === undefined ? undefined : actions[choice];
      if (command !== undefined) void commands.executeCommand(command);
    });
  }
}

/** One that Holdfast makes itself, so that we can do something about it. */
function lacksOwnImage({ code, details }: HoldfastError): boolean {
  const image = details?.['image'];
  return code === 'image_not_found' && typeof image === 'string' && image.startsWith('holdfast/');
}

/** What, why and what to do, as sentences. */
function sentences(error: HoldfastError): string {
  const { message, why, next } = error;
  const reason = why === undefined ? '' : `: ${why}`;
  return `${message}${reason}.${next === undefined ? '' : ` ${capital(next)}.`}`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
