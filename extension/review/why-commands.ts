import { languages } from 'vscode';
import type { Disposable } from 'vscode';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { SCHEME } from '../files/location.ts';
import { WhyLine } from './why-line.ts';

/** *Why This Line?* as a hover and a command. What answers is loaded with the first question. */
export class WhyCommands implements Disposable {
  readonly #connection: Connection;
  readonly #hovers: Disposable;
  #why: WhyLine | undefined;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#hovers = languages.registerHoverProvider(
      { scheme: SCHEME },
      {
        // A hover starts no supervisor.
        provideHover: (...asked) =>
          connection.connected.length > 0 ? this.#line.hover(...asked) : undefined,
      },
    );
  }

  get handlers() {
    return {
      'holdfast.whyThisLine': (line) => this.#line.explain(line),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  dispose(): void {
    this.#hovers.dispose();
  }

  get #line(): WhyLine {
    return (this.#why ??= new WhyLine(this.#connection));
  }
}
