import { commands, window } from 'vscode';
import type { LogOutputChannel } from 'vscode';
import type { HoldfastError } from '../../protocol/errors.ts';
import { sanitize } from '../base/sanitize.ts';
import type { ConnectionState } from '../connection/state.ts';

const SHOW_LOG = 'Show Log';
const TRY_AGAIN = 'Try Again';
const BUILD_IMAGES = 'Build Images';
const SHOW_SETUP_LOG = 'Show Setup Log';
const OPEN_THERE = 'Open It There';
/** Characters of each part of an error. */
const MAX_PART = 500;

/** Shows errors to the person, each with a button for the next step. The same message is not shown twice at a time. */
export class Notifications {
  readonly #log: LogOutputChannel;
  readonly #shown = new Set<string>();

  constructor(log: LogOutputChannel) {
    this.#log = log;
  }

  showError(error: HoldfastError): void {
    this.#log.error(`${error.code}: ${error.sentence}`, error.cause ?? '');
    const moved = movedTo(error);
    const setup = profileOfSetup(error);
    this.#show(sentences(error), {
      ...(setup === undefined ? {} : { [SHOW_SETUP_LOG]: ['holdfast.showSetupLog', setup] }),
      ...(moved === undefined ? {} : { [OPEN_THERE]: ['holdfast.openWorkspace', moved] }),
      ...(lacksOwnImage(error) ? { [BUILD_IMAGES]: 'holdfast.buildImages' } : {}),
      [SHOW_LOG]: 'holdfast.showLog',
    });
  }

  /** Explains why a command cannot run in this state of the connection. */
  showUnavailable(state: ConnectionState): void {
    switch (state.kind) {
      case 'engineDown': {
        const { why, next } = state.engine;
        this.#show(
          `Docker is not running${why === null ? '' : ` (${part(why)})`}. ${part(next ?? 'Start it')}.`,
          {
            [TRY_AGAIN]: 'holdfast.checkEngine',
          },
        );
        return;
      }
      case 'noSupervisor':
        this.#show(sentences(state.error), {
          [TRY_AGAIN]: 'holdfast.connect',
          [SHOW_LOG]: 'holdfast.showLog',
        });
        return;
      case 'unused':
      case 'connecting':
      case 'connected':
        this.#show('Holdfast is still connecting to its supervisor.', { [SHOW_LOG]: 'holdfast.showLog' });
    }
  }

  /** `actions`: commands by their labels, with their argument if they take one. */
  #show(message: string, actions: Readonly<Record<string, string | readonly [string, unknown]>>): void {
    if (this.#shown.has(message)) return;
    this.#shown.add(message);
    void window.showWarningMessage(message, ...Object.keys(actions)).then((choice) => {
      this.#shown.delete(message);
      const action = choice === undefined ? undefined : actions[choice];
      if (action === undefined) return;
      const [command, ...given] = typeof action === 'string' ? [action] : action;
      void commands.executeCommand(command, ...given);
    });
  }
}

/** The id of a session that has moved, where it is now. */
function movedTo({ details }: HoldfastError): string | undefined {
  const place = details?.['movedTo'];
  if (typeof place !== 'object' || place === null || !('session' in place)) return undefined;
  const { session } = place;
  return typeof session === 'string' && /^ses-[a-z2-7]{16}$/.test(session) ? session : undefined;
}

/** The profile and the host of a setup that failed or took too long, as `create-session.ts` names them. */
function profileOfSetup({ details }: HoldfastError): { profile: string; host: string } | undefined {
  const profile = details?.['setupOf'];
  const host = details?.['setupOn'];
  return typeof profile === 'string' && typeof host === 'string' ? { profile, host } : undefined;
}

/** Whether the missing image is one that *Build Images* can build. */
function lacksOwnImage({ code, details }: HoldfastError): boolean {
  const image = details?.['image'];
  return code === 'image_not_found' && typeof image === 'string' && image.startsWith('holdfast/');
}

/** The message, the reason and the next step, as sentences. */
function sentences(error: HoldfastError): string {
  const { message, why, next } = error;
  const reason = why === undefined ? '' : `: ${part(why)}`;
  return `${part(message)}${reason}.${next === undefined ? '' : ` ${capitalize(part(next))}.`}`;
}

/** Another machine may have written it: VS Code is to make no link or command of it. */
function part(text: string): string {
  return sanitize(text, MAX_PART);
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
