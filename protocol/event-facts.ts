import type { EventFacts, Note } from './event-type.ts';
import { EVENT_TYPES, type EventEntry, type EventType } from './events.ts';

/** What the table of event types says of an event. */

/** The types whose events change the row of a session, or of a turn. */
type TypesThatChange<What extends 'session' | 'turn'> = {
  [T in EventType]: (typeof EVENT_TYPES)[T]['facts'] extends { readonly changes: What } ? T : never;
}[EventType];
export type SessionChange = Extract<EventEntry, { type: TypesThatChange<'session'> }>;
export type TurnChange = Extract<EventEntry, { type: TypesThatChange<'turn'> }>;

export function changesSession(entry: EventEntry): entry is SessionChange {
  return factsOf(entry.type).changes === 'session';
}

export function changesTurn(entry: EventEntry): entry is TurnChange {
  return factsOf(entry.type).changes === 'turn';
}

/** All types of which the table says so. */
export function typesThat(fact: 'isStreamed' | 'isInManifests' | 'outlivesContents'): readonly EventType[] {
  return (Object.keys(EVENT_TYPES) as EventType[]).filter((type) => factsOf(type)[fact] === true);
}

/** The turn that an event belongs to; null for none. */
export function turnOf({ data }: EventEntry): string | null {
  return 'turnId' in data ? (data.turnId ?? null) : null;
}

/** The line of an event beside the conversation; null for none. */
export function noteOf(entry: EventEntry): Note | null {
  return factsOf(entry.type).note?.(entry.data) ?? null;
}

/** The line of an event in the history, with the texts of agents as they are. */
export function lineOf(entry: EventEntry): string {
  return factsOf(entry.type).line?.(entry.data) ?? noteOf(entry)?.text ?? fields(entry.data);
}

/** The line of an event in the transcript, with the texts of agents as they are; null for none. */
export function transcriptOf(entry: EventEntry): string | null {
  const { transcript } = factsOf(entry.type);
  return transcript === undefined ? (noteOf(entry)?.text ?? null) : transcript(entry.data);
}

/** The functions of a row take the data of its type, which TypeScript does not follow through the table. */
function factsOf(type: EventType): EventFacts<unknown> {
  return EVENT_TYPES[type].facts as EventFacts<unknown>;
}

function fields(data: object): string {
  return Object.entries(data)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ');
}
