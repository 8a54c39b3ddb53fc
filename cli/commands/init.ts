import { basename, join, resolve } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { PRESETS } from '../../protocol/presets/index.ts';
import { isPresetName, PRESET_NAMES, type PresetName } from '../../protocol/presets/names.ts';
import { ProfileNameSchema } from '../../protocol/profile-name.ts';
import { PROFILE_FILE } from '../../project/profile-file.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { writeNewFile } from '../new-file.ts';
import type { Registry } from '../registry.ts';
import { quoteForShell, sanitizeLine } from '../render/text.ts';
import { readLine } from '../terminal/questions.ts';

/** What `--preset` says for a program that is none of the presets. */
const OWN_PROGRAM = 'none';

interface InitFlags {
  readonly preset?: string;
  readonly name?: string;
}

export function registerInit(registry: Registry): void {
  const init = registry
    .command(registry.root, {
      usage: 'init [dir]',
      description:
        'write a first holdfast.yaml for an agent that works on the project in DIR (default: here)',
      operands: ['directory'],
      examples: ['holdfast init --preset opencode', 'holdfast init ~/project --preset claude --name helper'],
      withoutHost: true,
    })
    .option('--preset <agent>', `the agent: ${[...PRESET_NAMES, OWN_PROGRAM].join(', ')} (default: asks)`)
    .option('--name <name>', 'the name of the profile (default: that of the folder)');
  registry.setAction(init, async (context, flags: InitFlags, given: string | undefined) => {
    const directory = resolve(context.io.cwd, given ?? '.');
    const { findPackages } = await import('../../project/packages.ts');
    const { profileNameFor, starterProfile } = await import('../../project/starter.ts');
    const name = nameOf(flags.name) ?? profileNameFor(basename(directory));
    const preset = flags.preset === undefined ? await askPreset(context) : presetOf(flags.preset);
    const starter = starterProfile(name, preset);
    const { secret } = starter;
    // Before the file is written: what is said of the project can be wrong only where its files cannot be read.
    const { packages, notes } =
      preset === null ? { packages: {}, notes: [] } : await findPackages(directory, starter.packages);
    const file = join(directory, PROFILE_FILE);
    await writeNewFile(file, starter.text).catch((error: unknown) => {
      throw noFolder(error, directory);
    });
    if (context.json) {
      await context.printJson({ file, profile: name, preset, secret, packages, notes });
      return undefined;
    }
    await context.print(`${sanitizeLine(file)} was written.`);
    if (notes.length > 0) {
      await context.print('', 'A deploy installs once, in a container of its own:');
      await context.print(...notes.map((note) => `  ${sanitizeLine(note)}`));
    }
    await showNext(context, { name, secret, given, isProgram: preset === null });
    return undefined;
  });
}

async function showNext(
  context: Context,
  next: {
    readonly name: string;
    readonly secret: string | null;
    readonly given: string | undefined;
    readonly isProgram: boolean;
  },
): Promise<void> {
  const steps = [
    ...(next.secret === null ? [] : [`holdfast secret set ${next.secret}`]),
    `holdfast deploy ${next.given === undefined ? '.' : quoteForShell(next.given)}`,
    `holdfast run ${next.name} ${next.isProgram ? "'ls -la'" : "'What does this project do?'"}`,
  ];
  await context.printHint(['Next:', ...steps.map((step) => `  ${step}`)].join('\n'));
}

function nameOf(given: string | undefined): string | undefined {
  if (given === undefined || ProfileNameSchema.safeParse(given).success) return given;
  throw new UsageError(`${sanitizeLine(given)} cannot be the name of a profile`);
}

function presetOf(given: string): PresetName | null {
  if (given === OWN_PROGRAM) return null;
  if (isPresetName(given)) return given;
  throw new UsageError(
    `no agent is called ${sanitizeLine(given)}; there are ${[...PRESET_NAMES, OWN_PROGRAM].join(', ')}`,
  );
}

/** Asks for the agent on a terminal. Errors: a usage error where there is none, `cancelled`. */
async function askPreset(context: Context): Promise<PresetName | null> {
  if (!context.isInteractive || context.json)
    throw new UsageError(`say which agent: --preset ${[...PRESET_NAMES, OWN_PROGRAM].join('|')}`);
  const titles = [...PRESET_NAMES.map((name) => PRESETS[name].title), 'another program'];
  await context.printNote('Which agent is to work on the project?');
  for (const [index, title] of titles.entries()) await context.printNote(`  ${index + 1}  ${title}`);
  for (;;) {
    await context.stderr.write(`1–${titles.length}: `);
    const line = await readLine(context, context.interrupted);
    if (line === null) throw new HoldfastError('cancelled', 'Nothing was written');
    const answer = line.trim();
    if (isPresetName(answer)) return answer;
    const number = /^\d$/.test(answer) ? Number(answer) : 0;
    if (number >= 1 && number <= titles.length) return PRESET_NAMES[number - 1] ?? null;
  }
}

function noFolder(error: unknown, directory: string): unknown {
  const isMissing =
    error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR');
  return isMissing
    ? new HoldfastError('not_found', `There is no folder ${sanitizeLine(directory)}`, { cause: error })
    : error;
}
