import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { PassThrough } from 'node:stream';
import type { Command } from 'commander';
import ts from 'typescript';
import { describe, expect, test } from 'vitest';
import { buildProgram } from '../../../cli/program.ts';

const ROOT = join(import.meta.dirname, '../../..');

const program = buildProgram(
  {
    stdin: Object.assign(new PassThrough(), { setRawMode: () => undefined }),
    stdout: new PassThrough(),
    stderr: new PassThrough(),
    env: {},
    cwd: '/',
    supervisorCommand: ['holdfast'],
    now: () => 0,
    onSignal: () => () => undefined,
    pid: 1,
  } as unknown as Parameters<typeof buildProgram>[0],
  () => Promise.resolve(),
);

interface Mention {
  readonly where: string;
  /** What follows the program's name. */
  readonly words: string;
}

/** What stands behind `holdfast` where a command begins, up to the end of the code, line or sentence. */
const MENTION = /(?:^|[`$\s('"])holdfast (?:-- )?((?:[a-z_]|--)[^`'"\n;,)|&$]*)/g;
/** Where `holdfast` is the program's name in a sentence. */
const PROSE = /^(needs|for both|again)\b/;

function mentionsIn(where: string, text: string): Mention[] {
  return [...text.matchAll(MENTION)]
    .map(([, words = '']) => ({ where, words }))
    .filter(({ words }) => !PROSE.test(words));
}

function filesBelow(folder: string, ending: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending) && !name.includes('node_modules'))
    .map((name) => join(ROOT, folder, name));
}

/** Texts of a program, with `…` for what is filled in; comments are for readers of the program. */
function literalsOf(path: string): string[] {
  const program = readFileSync(path, 'utf8');
  // Most files name no command, and reading a program takes long.
  if (!/holdfast (?:-- )?(?:[a-z_]|--)|\bcontext\.command\b/.test(program)) return [];
  const texts: string[] = [];
  const source = ts.createSourceFile(path, program, ts.ScriptTarget.Latest, true);
  const textOf = (node: ts.Node): string | null => {
    if (ts.isStringLiteralLike(node)) return node.text;
    if (!ts.isTemplateExpression(node)) return null;
    return node.head.text + node.templateSpans.map(({ literal }) => `…${literal.text}`).join('');
  };
  const visit = (node: ts.Node): void => {
    const text = textOf(node);
    if (text !== null) texts.push(text);
    // `context.command('turn wait …')` is a command for the machine that the person named.
    if (ts.isCallExpression(node) && /\bcontext\.command$/.test(node.expression.getText(source)))
      texts.push(...node.arguments.flatMap((words) => `holdfast ${textOf(words) ?? ''}`));
    ts.forEachChild(node, visit);
  };
  visit(source);
  return texts;
}

/** `review` has commands, and an operand of its own. */
function isGroup({ commands, registeredArguments }: Command): boolean {
  return commands.length > 0 && registeredArguments.length === 0;
}

/** Null where the command line could be typed so; else what is wrong with it. */
function problem(words: string): string | null {
  let command: Command = program;
  const typed = words.trim().split(/\s+/);
  for (const [at, word] of typed.entries()) {
    // What follows is the sandbox's, or of a command that is filled in.
    if (word === '--' || (word === '…' && command.commands.length > 0)) return null;
    if (word.startsWith('-')) {
      const flag = /^--?[a-zA-Z][a-z-]*/.exec(word)?.[0];
      const common = ['--json', '--home', '--help', '--version', '-h', '-V'];
      const known = command.options.some(({ long, short }) => flag === long || flag === short);
      if (flag !== undefined && !known && !common.includes(flag))
        return `${command.name()} has no option ${flag}`;
      continue;
    }
    const next = command.commands.find((one) => one.name() === word);
    if (next !== undefined) command = next;
    else if (at === 0 || (isGroup(command) && /^[a-z]+$/.test(word)))
      return `${command.name()} has no command ${word}`;
  }
  return null;
}

describe('every command that a text names can be typed', () => {
  const programs = [
    'supervisor',
    'protocol',
    'hosts',
    'handoff',
    'sidecar',
    'cli',
    'extension',
    'scripts',
  ].flatMap((folder) =>
    filesBelow(folder, '.ts').flatMap((path) =>
      literalsOf(path).flatMap((text) => mentionsIn(relative(ROOT, path), text)),
    ),
  );
  const pages = [
    ...filesBelow('docs', '.md'),
    join(ROOT, 'README.md'),
    join(ROOT, 'CONTRIBUTING.md'),
  ].flatMap((path) => {
    const code = readFileSync(path, 'utf8').match(/```[\s\S]*?```|`[^`\n]+`/g) ?? [];
    return code.flatMap((text) => mentionsIn(relative(ROOT, path), text));
  });

  test('there are such texts', () => {
    expect(programs.length).toBeGreaterThan(50);
    expect(pages.length).toBeGreaterThan(20);
    expect(problem('events default')).toBe('holdfast has no command events');
    expect(problem('session events default --follow')).toBeNull();
    expect(problem('session list --folow')).toBe('list has no option --folow');
    expect(problem('session lst')).toBe('session has no command lst');
  });

  test.each([
    ['messages', programs],
    ['pages', pages],
  ])('in %s', (_, mentions) => {
    const wrong = mentions.flatMap(({ where, words }) => {
      const found = problem(words);
      return found === null ? [] : [`${where}: holdfast ${words}: ${found}`];
    });
    expect(wrong).toEqual([]);
  });
});

test('every command prints JSON when it is asked to, except where its output is a terminal or a raw stream', () => {
  const leaves = (command: Command): Command[] =>
    command.commands.length === 0 ? [command] : command.commands.flatMap(leaves);
  const without = leaves(program)
    // Of later versions, and help.
    .filter((leaf) => leaf.description() !== 'not available in this version' && leaf.name() !== 'help')
    .filter((leaf) => !leaf.options.some(({ long }) => long === '--json'));
  const pathOf = (command: Command): string =>
    command.parent === null ? '' : `${pathOf(command.parent)} ${command.name()}`.trim();
  expect(without.map(pathOf).sort()).toEqual(['connect', 'terminal attach']);
});
