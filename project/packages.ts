import { constants, lstat, open } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { HoldfastError } from '../protocol/errors.ts';
import { isPackage, MAX_PACKAGES, type Packages, PackagesSchema } from '../protocol/setup.ts';
import { hasErrorCode } from './file-error.ts';

const MOST_BYTES = 2 ** 20;
const SHOWN_CHARACTERS = 100;
/** How many entries of a file are named that are left out. */
const MOST_NOTES = 20;

/** What is installed for a project and its agent. */
export interface ProjectPackages {
  readonly packages: Packages;
  /** On one line each, for people: where packages were found, and what cannot be installed as one. */
  readonly notes: readonly string[];
}

const NpmSchema = z.object({
  dependencies: z.record(z.string(), z.string()).optional(),
  devDependencies: z.record(z.string(), z.string()).optional(),
});
const PythonSchema = z.object({
  project: z.object({ dependencies: z.array(z.string()).optional() }).optional(),
});

/**
 * What `setup.packages: auto` installs: the npm packages of the agent, and what package.json, requirements.txt and pyproject.toml of
 * a project name. Files are read, and nothing of them runs. Errors:
 * `profile_invalid` for a file that cannot be read as what its name says.
 */
export async function findPackages(
  folder: string,
  ofAgent: readonly string[] = [],
): Promise<ProjectPackages> {
  const notes = ofAgent.length === 0 ? [] : [`npm, for the agent: ${ofAgent.join(' ')}`];
  const npm = new Set(ofAgent);
  const agentNames = new Set(ofAgent.map(nameOf));
  const pip = new Set<string>();
  const add = (kind: 'npm' | 'pip', file: string, names: readonly string[]): void => {
    const into = kind === 'npm' ? npm : pip;
    const fitting = new Set<string>();
    const others: string[] = [];
    for (const name of names) {
      if (!isPackage(kind, name)) others.push(name);
      else if (fitting.add(name).size > MAX_PACKAGES) break;
    }
    for (const name of fitting) into.add(name);
    if (fitting.size > 0) notes.push(`${kind}, from ${file}: ${[...fitting].join(' ')}`);
    for (const name of others.slice(0, MOST_NOTES))
      notes.push(`left out of ${file}, because it is no name with a version: ${name}`);
    if (others.length > MOST_NOTES)
      notes.push(`left out of ${file}, for the same reason: ${others.length - MOST_NOTES} more`);
  };

  const json = await readText(folder, 'package.json');
  if (json !== null) {
    const { dependencies = {}, devDependencies = {} } = parsed('package.json', NpmSchema, () =>
      JSON.parse(json),
    );
    // npm would install the last of two versions.
    const all = Object.entries({ ...dependencies, ...devDependencies }).filter(
      ([name]) => !agentNames.has(name),
    );
    add(
      'npm',
      'package.json',
      all.map(([name, range]) => (range === '' || range === '*' ? name : `${name}@${range}`)),
    );
  }
  const requirements = await readText(folder, 'requirements.txt');
  if (requirements !== null) add('pip', 'requirements.txt', requirementsIn(requirements));
  const toml = await readText(folder, 'pyproject.toml');
  if (toml !== null) {
    // Only such a project needs the parser.
    const { parse } = await import('smol-toml');
    const { project } = parsed('pyproject.toml', PythonSchema, () => parse(toml));
    add('pip', 'pyproject.toml', (project?.dependencies ?? []).map(compact));
  }
  const found = PackagesSchema.safeParse({
    ...(npm.size === 0 ? {} : { npm: [...npm] }),
    ...(pip.size === 0 ? {} : { pip: [...pip] }),
  });
  if (!found.success)
    throw new HoldfastError('profile_invalid', 'The packages of the project cannot be installed', {
      why: z.prettifyError(found.error),
      next: 'list what the agent needs in `setup.packages`',
    });
  return { packages: found.data, notes: notes.map((note) => singleLine(note, SHOWN_CHARACTERS * 20)) };
}

/** `@scope/name@1.2.3` without its version. */
function nameOf(npmPackage: string): string {
  return npmPackage.slice(0, npmPackage.indexOf('@', 1));
}

/** Lines that name a package; comments, markers and options are left out. */
function requirementsIn(text: string): string[] {
  return text
    .replace(/\\\r?\n/g, ' ')
    .split(/\r?\n/)
    .map((line) => line.replace(/(^|\s)#.*$/, '').replace(/\s--hash=\S+/g, ''))
    .map(compact)
    .filter((line) => line !== '');
}

/** `name >= 1, < 2 ; marker` without spaces and marker. */
function compact(requirement: string): string {
  const [name = ''] = requirement.split(';');
  return name.includes('@') || name.trim().startsWith('-') ? name.trim() : name.replace(/[\s()]/g, '');
}

function parsed<T extends z.ZodType>(file: string, schema: T, parse: () => unknown): z.output<T> {
  try {
    return schema.parse(parse());
  } catch (cause) {
    throw new HoldfastError('profile_invalid', `${file} of the project cannot be read`, {
      why: singleLine(cause instanceof Error ? cause.message : String(cause), SHOWN_CHARACTERS),
      next: 'correct it, or list what the agent needs in `setup.packages`',
      cause,
    });
  }
}

/** Null if there is no such file. A link is not followed: the project may have brought it along. */
async function readText(folder: string, name: string): Promise<string | null> {
  const path = join(folder, name);
  try {
    const { size } = await lstat(path);
    if (size > MOST_BYTES)
      throw new HoldfastError('profile_invalid', `${name} of the project is too large`, {
        why: `it has more than ${MOST_BYTES} bytes`,
        next: 'list what the agent needs in `setup.packages`',
      });
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      return (await file.stat()).isFile() ? await file.readFile('utf8') : null;
    } finally {
      await file.close();
    }
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT') || hasErrorCode(error, 'ELOOP')) return null;
    throw error;
  }
}

function singleLine(text: string, characters: number): string {
  const line = text.replaceAll(/[\s\p{C}]+/gu, ' ').trim();
  return line.length <= characters ? line : `${line.slice(0, characters - 1)}…`;
}
