import type { z } from 'zod';

/** A line beside the conversation. The session page and the CLI draw it as it is. */
export interface Note {
  /** A codicon. */
  readonly icon: string;
  /** For people. May contain what an agent wrote: whoever shows it sanitizes it. */
  readonly text: string;
  readonly isWarning: boolean;
}

/** What is to know about an event type besides its data. Everything has a default, so a plain event is only its schema. */
export interface EventFacts<Data> {
  /** The fields of a session's row or of a turn's row that `supervisor/history/projection.ts` rebuilds. Default: none. */
  readonly changes?: 'session' | 'turn';
  /** It comes in numbers while an agent works, and changes nothing that a list of sessions shows. */
  readonly isStreamed?: true;
  /** Manifests are made of it (`supervisor/manifests/history-summary.ts`). */
  readonly isInManifests?: true;
  /** Its data stays when the contents of a deleted session are removed. */
  readonly outlivesContents?: true;
  /** Its line in the history. Default: the text of its note, else `name=value` for each field. */
  readonly line?: (data: Data) => string;
  /** Its line in the transcript; null for none. Default: the text of its note, else none. */
  readonly transcript?: (data: Data) => string | null;
  /** Its line beside the conversation; null for none. Default: none. */
  readonly note?: (data: Data) => Note | null;
}

/** A row of the table of event types: the schema of the data, and what else is to know. */
export function eventType<S extends z.ZodType, const F extends EventFacts<z.output<S>>>(
  data: S,
  facts?: F,
): { readonly data: S; readonly facts: F } {
  return { data, facts: facts ?? ({} as F) };
}
