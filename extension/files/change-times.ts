import { EventEmitter } from 'vscode';
import type { Uri } from 'vscode';
import { fileKey } from './location.ts';

const MAX_FILES = 20_000;

/** When each file changed last, as far as VS Code has listed it or was notified of a change. */
export class ChangeTimes {
  readonly #times = new Map<string, number>();
  readonly #changed = new EventEmitter<Uri[]>();
  readonly onDidChange = this.#changed.event;

  /** Records the time from a directory listing. Fires no event, because nothing has changed. */
  recordListed(uri: Uri, mtimeMs: number): void {
    this.#set(fileKey(uri), mtimeMs);
  }

  recordChanged(uris: readonly Uri[]): void {
    const now = Date.now();
    for (const uri of uris) this.#set(fileKey(uri), now);
    this.#changed.fire([...uris]);
  }

  lastChangeOf(uri: Uri): number {
    return this.#times.get(fileKey(uri)) ?? 0;
  }

  #set(key: string, time: number): void {
    this.#times.delete(key);
    this.#times.set(key, time);
    if (this.#times.size <= MAX_FILES) return;
    const [oldest] = this.#times.keys();
    if (oldest !== undefined) this.#times.delete(oldest);
  }
}
