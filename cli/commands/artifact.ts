import { resolve } from 'node:path';
import { type Artifact, artifactList } from '../../protocol/artifacts.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { describeStayedBehind, printStayedBehind } from '../left-out.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { formatSize } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';
import { writeNewFile } from '../new-file.ts';

type Group = ReturnType<Registry['group']>;

export function registerArtifacts(registry: Registry): void {
  const group = registry.group('artifact', 'results that are kept without session and workspace');
  registerCreate(registry, group);
  registerList(registry, group);
  registerShow(registry, group);
  registerExport(registry, group);
  const remove = registry.command(group, {
    usage: 'rm <artifacts...>',
    description: 'delete artifacts permanently',
    operands: ['none'],
  });
  registry.setAction(remove, async (context, _options, artifacts: readonly string[]) => {
    for (const artifact of artifacts) {
      const { removed } = await context.call('artifact/remove', { artifact });
      if (!removed) throw new HoldfastError('not_found', `There is no artifact ${artifact}`);
      if (!context.json) await context.print(`Removed ${artifact}`);
    }
    if (context.json) await context.printJson({ removed: artifacts });
    return undefined;
  });
}

interface CreateOptions {
  readonly paths?: readonly string[];
  readonly patch?: boolean;
  readonly name?: string;
  readonly unreviewed?: boolean;
}

/** Creates an artifact and says what was left out. */
export async function createArtifact(
  context: Context,
  session: string,
  { paths = [], patch = false, name, unreviewed }: CreateOptions,
): Promise<{ readonly artifact: Artifact; readonly leftOutPaths: readonly string[] }> {
  for (const pattern of paths)
    if (pattern.trim() === '') throw new UsageError('a pattern must not be empty; `**` means everything');
  context.progress.begin('Scanning the workspace');
  try {
    return await context.call('artifact/create', {
      session,
      kind: patch ? 'patch' : 'files',
      ...(paths.length === 0 ? {} : { paths: [...paths] }),
      ...(name === undefined ? {} : { name }),
      ...(unreviewed === undefined ? {} : { unreviewed }),
      opId: newOpId(),
    });
  } finally {
    context.progress.end();
  }
}

export async function printCreated(
  context: Context,
  { artifact, leftOutPaths }: Awaited<ReturnType<typeof createArtifact>>,
): Promise<void> {
  const size = `${pluralize(artifact.files, 'file')}, ${formatSize(artifact.bytes)}`;
  await context.printNote(`Kept as ${artifact.id}: ${size}, from ${artifact.snapshot}`);
  for (const path of leftOutPaths)
    await context.printNote(`left out: ${sanitizeLine(path)}: it is not a regular file`);
  if (artifact.leftOut > leftOutPaths.length)
    await context.printNote(`left out: ${artifact.leftOut - leftOutPaths.length} more`);
  await context.printHint(`Take it out: ${context.command(`artifact export ${artifact.id} --dir FOLDER`)}`);
}

function registerCreate(registry: Registry, group: Group): void {
  const command = registry
    .command(group, {
      usage: 'create <session>',
      description:
        'keep files of a session permanently: the changes that you accepted, or without a review all changes',
      operands: ['session'],
      examples: [
        'holdfast artifact create default --paths dist report.md',
        'holdfast artifact create default --patch',
      ],
    })
    .option(
      '--paths <pattern...>',
      'these files and folders, changed or not, also ignored ones; * and ** match names',
    )
    .option('--patch', 'as one patch, for `git apply`')
    .option('--name <name>', 'what it is called (default: the name of the session)')
    .option('--unreviewed', 'from the workspace as it is, although the session has a review');
  registry.setAction(command, async (context, options: CreateOptions, session: string) => {
    const created = await createArtifact(context, session, options);
    if (context.json) await context.printJson(created);
    else {
      await context.print(created.artifact.id);
      await printCreated(context, created);
    }
    return undefined;
  });
}

function registerList(registry: Registry, group: Group): void {
  const command = registry.command(group, {
    usage: 'list [session]',
    description: 'list artifacts, the newest first; of a deleted session by its id',
    operands: ['session'],
  });
  registry.setAction(command, async (context, _options, session: string | undefined) => {
    const { artifacts } = await context.call('artifact/list', session === undefined ? {} : { session });
    if (context.json) {
      await context.printJson({ artifacts });
      return undefined;
    }
    if (artifacts.length === 0) {
      await context.printHint(
        `Nothing is kept. Keep files: ${context.command('artifact create SESSION --paths PATTERN')}`,
      );
      return undefined;
    }
    const table = formatTable(
      artifacts,
      [
        { title: 'ARTIFACT', value: ({ id }) => id },
        { title: 'NAME', value: ({ name }) => name, shrinkPriority: 2 },
        { title: 'KIND', value: ({ kind }) => kind },
        { title: 'FILES', value: ({ files }) => String(files), align: 'right' },
        { title: 'SIZE', value: ({ bytes }) => formatSize(bytes), align: 'right' },
        {
          title: 'SESSION',
          value: ({ profile, sessionName }) => `${profile}/${sessionName}`,
          shrinkPriority: 1,
        },
        { title: 'CREATED', value: ({ createdAt }) => createdAt },
      ],
      { width: context.stdout.columns, header: context.style.dim },
    );
    await context.print(...table);
    return undefined;
  });
}

interface ShowOptions {
  readonly files?: boolean;
  readonly sums?: boolean;
  readonly manifest?: string;
}

function registerShow(registry: Registry, group: Group): void {
  const command = registry
    .command(group, {
      usage: 'show <artifact>',
      description: 'show an artifact, its files, or its signed statement',
      operands: ['none'],
      examples: ['holdfast artifact show art-… --sums | sha256sum'],
    })
    .option('--files', 'also its files')
    .option('--sums', 'print only the signed list of its files, for `sha256sum -c`')
    .option('--manifest <file>', 'also save the signed statement in this new file, for `manifest verify`');
  registry.setAction(command, async (context, options: ShowOptions, id: string) => {
    const { readArtifactFiles } = await import('../../handoff/artifact-files.ts');
    const { artifact, envelope, files } = await readArtifactFiles(context.client(), id, context.interrupted);
    if (options.manifest !== undefined)
      await writeNewFile(resolve(context.io.cwd, options.manifest), `${JSON.stringify(envelope)}\n`);
    if (context.json) await context.printJson({ artifact, envelope, files });
    else if (options.sums === true) await context.stdout.write(artifactList(files));
    else {
      const rows: readonly (readonly [string, string])[] = [
        ['Artifact', `${artifact.id}, ${artifact.createdAt}`],
        ['Name', artifact.name],
        ['Kind', artifact.kind],
        ['Session', `${artifact.profile}/${artifact.sessionName} (${artifact.session})`],
        ['Snapshot', artifact.snapshot],
        ['Files', `${artifact.files}, ${formatSize(artifact.bytes)}, ${artifact.leftOut} left out`],
        ['SHA-256', `${artifact.sha256} of the list of its files`],
      ];
      await context.print(...rows.map(([name, value]) => sanitizeLine(`${name.padEnd(10)}${value}`)));
      if (options.files === true)
        await context.print(
          '',
          ...files.map(({ path, sha256, size }) =>
            sanitizeLine(`${sha256.slice(0, 16)}  ${formatSize(size).padStart(9)}  ${path}`),
          ),
        );
    }
    return undefined;
  });
}

interface ExportOptions {
  readonly dir: string;
  readonly paths?: readonly string[];
  readonly includeQuarantined?: readonly string[];
}

function registerExport(registry: Registry, group: Group): void {
  const command = registry
    .command(group, {
      usage: 'export <artifact>',
      description: 'write the files of an artifact into a new folder',
      operands: ['none'],
      examples: ['holdfast artifact export art-… --dir results'],
    })
    .requiredOption('--dir <folder>', 'the new folder')
    .option('--paths <pattern...>', 'only these files and folders; * and ** match names')
    .option('--include-quarantined <pattern...>', 'include files that would run on your machine');
  registry.setAction(command, async (context, options: ExportOptions, id: string) => {
    const { dir, paths = [], includeQuarantined: released = [] } = options;
    for (const pattern of [...paths, ...released])
      if (pattern.trim() === '') throw new UsageError('a pattern must not be empty; `**` means everything');
    const { exportArtifact } = await import('../../handoff/artifact-export.ts');
    const { readArtifactFiles } = await import('../../handoff/artifact-files.ts');
    const signal = context.interrupted;
    const contents = await readArtifactFiles(context.client(), id, signal);
    const folder = resolve(context.io.cwd, dir);
    const exported = await exportArtifact(context.client(), contents, { folder, paths, released, signal });
    const { notChosen } = exported;
    if (context.json) {
      await context.printJson({ artifact: id, ...exported, ...describeStayedBehind(exported) });
      return undefined;
    }
    await context.print(
      `${pluralize(exported.files, 'file')} written into ${quoteForShell(exported.folder)}`,
    );
    await printStayedBehind(context, exported, 'run on your machine');
    if (notChosen > 0) await context.printNote(`${pluralize(notChosen, 'file')} not chosen by --paths`);
    return undefined;
  });
}
