import { InvalidArgumentError } from 'commander';
import { parseDuration } from './render/quantity.ts';

/** Parsers for option values. Commander adds the name of the option to their errors. */

export function oneOf<Word extends string>(words: readonly Word[]): (text: string) => Word {
  return (text) => {
    const found = words.find((word) => word === text);
    if (found === undefined) throw new InvalidArgumentError(`Allowed values: ${words.join(', ')}.`);
    return found;
  };
}

export function positiveInteger(most: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d{1,9}$/.test(text) || value < 1 || value > most) {
      throw new InvalidArgumentError(`Expected a whole number from 1 to ${most}.`);
    }
    return value;
  };
}

export function wholeNumber(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('Expected a whole number, 0 or more.');
  return Number(text);
}

/** `90` (seconds), `1.5`, `30s`, `5m`, `2h` → milliseconds, at least one. */
export function durationValue(text: string): number {
  const value = parseDuration(text);
  if (value === undefined || value < 1) {
    throw new InvalidArgumentError('Expected a number of seconds, or a duration such as 30s, 5m or 2h.');
  }
  return value;
}

export function repeated(text: string, before: string[] | undefined): string[] {
  return [...(before ?? []), text];
}

/** `NAME=VALUE`, repeated for each variable. */
export function environment(
  text: string,
  before: Record<string, string> | undefined,
): Record<string, string> {
  const [, name, value] = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) throw new InvalidArgumentError('Expected NAME=VALUE.');
  return { ...before, [name]: value };
}
