import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { COMMANDS } from '../../../extension/commands/table.ts';

const ManifestSchema = z.object({
  contributes: z.object({
    commands: z.array(z.object({ command: z.string(), title: z.string(), category: z.string().optional() })),
    menus: z.object({
      commandPalette: z.array(z.object({ command: z.string(), when: z.string().optional() })),
    }),
  }),
});

function readJson(name: string): unknown {
  return JSON.parse(readFileSync(new URL(`../../../${name}`, import.meta.url), 'utf8'));
}

/** The titles of the Command Palette: category and title. */
function paletteTitles(): string[] {
  const texts = z.record(z.string(), z.string()).parse(readJson('package.nls.json'));
  const { commands, menus } = ManifestSchema.parse(readJson('package.json')).contributes;
  const hidden = new Set(
    menus.commandPalette.filter((item) => item.when === 'false').map((item) => item.command),
  );
  const resolve = (text: string): string => texts[text.replaceAll('%', '')] ?? text;
  return commands
    .filter((command) => !hidden.has(command.command))
    .map(
      ({ category, title }) => `${category === undefined ? '' : `${resolve(category)}: `}${resolve(title)}`,
    );
}

/**
 * Whether typing `typed` lists `title`, as the Command Palette matches: each word of `title`, in order,
 * takes none or some of the first letters that are left.
 */
function isListedFor(typed: string, title: string): boolean {
  const words = title.toLowerCase().split(/\s+/);
  const matches = (rest: string, at: number): boolean => {
    if (rest === '') return true;
    const word = words[at];
    if (word === undefined) return false;
    for (let length = 0; length <= word.length && rest.startsWith(word.slice(0, length)); length += 1)
      if (matches(rest.slice(length), at + 1)) return true;
    return false;
  };
  return matches(typed.toLowerCase().replaceAll(/\s+/g, ''), 0);
}

test('whoever types the title of a command and presses Enter runs that command', () => {
  const titles = paletteTitles();
  expect(titles).toContain('Agent: New Session');
  expect(isListedFor('Agent: New Session', 'Agent: Go to Next Window Session')).toBe(true);
  // The palette sorts what it lists by title.
  const wrong = titles.flatMap((typed) =>
    titles
      .filter((title) => title.localeCompare(typed) < 0 && isListedFor(typed, title))
      .map((title) => `${typed} runs ${title}`),
  );
  expect(wrong).toEqual([]);
});

test('every command that the editor lists has a line in the table of commands, and every text exists', () => {
  const { commands } = ManifestSchema.parse(readJson('package.json')).contributes;
  // A command of the editor's own, which it would list otherwise.
  const foreign = new Set(['editor.emmet.action.updateImageSize']);
  const listed = commands.map(({ command }) => command).filter((command) => !foreign.has(command));
  expect(listed.toSorted()).toEqual(Object.keys(COMMANDS).toSorted());
  const texts = z.record(z.string(), z.string()).parse(readJson('package.nls.json'));
  const named = [...JSON.stringify(readJson('package.json')).matchAll(/"%([^%"]+)%"/g)].map(([, key]) => key);
  expect(new Set(named)).toEqual(new Set(Object.keys(texts)));
});
