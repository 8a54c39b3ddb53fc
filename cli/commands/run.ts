import type { AttachmentRef } from '../../protocol/attachments.ts';
import type { Session, Turn } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Params } from '../../protocol/methods.ts';
import { type TurnKind, inputOfKind } from '../../protocol/turn-kinds.ts';
import { attach, collected, readAttachments, uploadAttachments } from '../attachments.ts';
import type { LocalAttachment } from '../attachments.ts';
import type { Context } from '../context.ts';
import { EXIT, UsageError, colorFailure, describeFailure } from '../failure.ts';
import { createArtifact, printCreated } from './artifact.ts';
import { converse } from '../conversation/interactive.ts';
import { showAgentTurn } from '../conversation/agent-turn.ts';
import { followTurn, TurnInterrupts } from '../follow-turn.ts';
import { durationValue } from '../option-values.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';
import { validateInput, readInput } from '../turn-input.ts';
import { createSinks, fetchAgentKind, runnerOf } from '../turn-output.ts';
import { printResult, turnJson } from '../turn-result.ts';

interface PromptOptions {
  attach?: string[];
  timeout?: number;
  wait: boolean;
}

interface RunOptions extends PromptOptions {
  session?: string;
  artifact?: readonly string[];
}

const ATTACH = [
  '--attach <file>',
  'attach a file (10 MiB at most), or a path below /workspace; repeatable',
] as const;

export function registerRun(registry: Registry): void {
  const run = registry
    .command(registry.root, {
      usage: 'run <profile> <input>',
      description:
        "run one turn and print the agent's output. INPUT is JSON for a handler, text for a command; - reads standard input",
      operands: ['profile', 'none'],
      examples: [
        `holdfast run counter '{}'`,
        `holdfast run counter '{}' --session user-123`,
        `echo 'Write the tests' | holdfast run coder - --no-wait`,
        `holdfast run coder 'Why does it look like this?' --attach screenshot.png`,
        `holdfast run report 'Sum up May' --artifact report.md 'charts/*.png'`,
      ],
    })
    .option(...ATTACH, collected)
    .option(
      '--session <name>',
      'the session to use, created if missing (default: `default`, or a temporary one for an ephemeral profile)',
    )
    .option('--timeout <s>', 'cancel the turn after this many seconds (or 5m, 2h)', durationValue)
    .option('--no-wait', 'print the turn id and exit; the turn continues')
    .option(
      '--artifact <pattern...>',
      'keep these files permanently when the turn has ended; * and ** match names',
    );
  registry.setAction(run, async (context, options: RunOptions, profile: string, operand: string) => {
    const kind = await fetchAgentKind(context, profile);
    const input = await readInput(context.io, operand);
    validateInput(input, kind, `holdfast run ${quoteForShell(profile)}`);
    const { artifact: keep, timeout: timeoutMs, wait } = options;
    if (keep !== undefined) requireKeepable(keep, wait);
    const files = await readAttachments(context, options.attach ?? []);
    const where = await sessionOfRun(context, profile, options.session);
    const turn = { kind, input, where, timeoutMs, wait };
    if (files.length > 0) return runTurnWithFiles(context, profile, files, keep, turn);
    return keep === undefined ? runTurn(context, turn) : runTurnForArtifact(context, profile, keep, turn);
  });

  const prompt = registry
    .command(registry.root, {
      usage: 'prompt <session> [text]',
      description:
        'run one turn in an existing session; - reads the text from standard input, and without a text a terminal is a conversation',
      operands: ['session', 'none'],
      examples: [
        `holdfast prompt invoices 'Now the ones from May'`,
        'holdfast prompt invoices - < task.md',
        `holdfast prompt invoices 'Why does it look like this?' --attach screenshot.png --attach /workspace/src/page.css`,
        'holdfast prompt invoices',
      ],
    })
    .option(...ATTACH, collected)
    .option('--timeout <s>', 'cancel the turn after this many seconds (or 5m, 2h)', durationValue)
    .option('--no-wait', 'print the turn id and exit; the turn continues');
  registry.setAction(
    prompt,
    async (context, options: PromptOptions, reference: string, operand: string | undefined) => {
      const { session } = await context.call('session/show', { session: reference });
      const kind = await fetchAgentKind(context, session.profile);
      const where = { session: session.id };
      const paths = options.attach ?? [];
      const take = async (input: Buffer): Promise<number | undefined> => {
        validateInput(input, kind, `holdfast prompt ${quoteForShell(reference)}`);
        const attachments = await attach(context, session.id, paths);
        const { timeout: timeoutMs, wait } = options;
        return runTurn(context, { kind, input, attachments, where, timeoutMs, wait });
      };
      if (operand !== undefined) return take(await readInput(context.io, operand));
      if (paths.length > 0) {
        throw new UsageError(
          'a text is missing: --attach sends files along with one; - reads it from standard input',
          'invalid_params',
        );
      }
      if (context.isInteractive && !context.json && options.wait)
        return converse(context, session.name, take);
      throw new UsageError('a text is missing; - reads it from standard input', 'invalid_params');
    },
  );
}

type Where = Pick<Params<'turn/start'>, 'session' | 'profile' | 'name'>;

/** A name refers to a session of the profile, which is created if missing. An id must belong to the profile. */
async function sessionOfRun(context: Context, profile: string, session: string | undefined): Promise<Where> {
  if (session === undefined) return { profile };
  if (!/^ses-[a-z2-7]{16}$/.test(session)) return { profile, name: session };
  const found = await context.call('session/show', { session });
  if (found.session.profile !== profile) {
    throw new UsageError(
      `${session} belongs to the profile ${found.session.profile}, not to ${sanitizeLine(profile)}`,
      'invalid_params',
    );
  }
  return { session };
}

function requireKeepable(patterns: readonly string[], wait: boolean): void {
  if (!wait)
    throw new UsageError('--artifact does not go with --no-wait: use `holdfast artifact create` later');
  for (const pattern of patterns)
    if (pattern.trim() === '') throw new UsageError('a pattern must not be empty; `**` means everything');
}

/** Whether the session would be one that an ephemeral profile gets for this turn alone. */
async function isPassing(context: Context, profile: string, { name, session }: Where): Promise<boolean> {
  if (name !== undefined || session !== undefined) return false;
  const { profiles } = await context.call('profile/list', {});
  return profiles.some((one) => one.name === profile && !one.persistent);
}

async function createOwn(context: Context, profile: string): Promise<string> {
  return (await context.call('session/create', { profile, opId: newOpId() })).session.id;
}

/** The session that a turn would run in, created if missing. */
async function ensureSession(context: Context, profile: string, where: Where): Promise<string> {
  if (where.session !== undefined) return where.session;
  const { name = 'default' } = where;
  const find = async () => (await context.call('session/show', { session: `${profile}/${name}` })).session.id;
  try {
    return await find();
  } catch (error) {
    if (HoldfastError.from(error).code !== 'not_found') throw error;
  }
  try {
    return (await context.call('session/create', { profile, name, opId: newOpId() })).session.id;
  } catch (error) {
    // Somebody else created it a moment before.
    if (HoldfastError.from(error).code !== 'already_exists') throw error;
    return find();
  }
}

/**
 * A turn that brings files along, which are uploaded to its session before it. An ephemeral profile gets a session for it, which is
 * deleted with the end of the turn; should this program die, it expires as others of the profile do.
 */
async function runTurnWithFiles(
  context: Context,
  profile: string,
  files: readonly LocalAttachment[],
  keep: readonly string[] | undefined,
  options: TurnOptions,
): Promise<number | undefined> {
  const isOwn = await isPassing(context, profile, options.where);
  if (isOwn && !options.wait) {
    throw new UsageError(
      `--attach with --no-wait needs --session: a session of ${sanitizeLine(profile)} lasts as long as somebody waits for its turn`,
      'invalid_params',
    );
  }
  const session = isOwn
    ? await createOwn(context, profile)
    : await ensureSession(context, profile, options.where);
  let isWanted = false;
  // From then on only its end may delete the session: a lost connection is none, and the turn goes on.
  let isRunning = false;
  try {
    const attachments = await uploadAttachments(context, session, files);
    const turn = { ...options, where: { session }, attachments };
    isRunning = true;
    if (keep === undefined) {
      const code = await runTurn(context, turn);
      isRunning = false;
      return code;
    }
    const ended = await runTurnAndPromote(context, keep, turn);
    isRunning = false;
    isWanted = !ended.isKept;
    if (isOwn && isWanted) await noteStays(context, session);
    return ended.code;
  } finally {
    if (isOwn && !isWanted && !isRunning) await deleteOwn(context, session);
  }
}

/** It expires by itself otherwise, and what else went wrong is what a person has to know. */
async function deleteOwn(context: Context, session: string): Promise<void> {
  try {
    await context.call('session/delete', { session, force: true });
  } catch (error) {
    await context.printNote(describeFailure(error).line);
  }
}

/**
 * A turn whose results are kept. The session that an ephemeral profile gets for one turn would be gone with them, so it gets another,
 * which is deleted when they are kept; should they not be, or this program die, it stays.
 */
async function runTurnForArtifact(
  context: Context,
  profile: string,
  paths: readonly string[],
  options: TurnOptions,
): Promise<number | undefined> {
  const own = (await isPassing(context, profile, options.where)) ? await createOwn(context, profile) : null;
  const where = own === null ? options.where : { session: own };
  const { code, isKept } = await runTurnAndPromote(context, paths, { ...options, where });
  if (own !== null && isKept) await context.call('session/delete', { session: own, force: true });
  else if (own !== null) await noteStays(context, own);
  return code;
}

async function runTurnAndPromote(
  context: Context,
  paths: readonly string[],
  options: TurnOptions,
): Promise<{ code: number | undefined; isKept: boolean }> {
  const kept: string[] = [];
  const onEnded = async ({ sessionId }: Turn): Promise<Readonly<Record<string, unknown>>> => {
    try {
      const created = await createArtifact(context, sessionId, { paths });
      kept.push(created.artifact.id);
      await printCreated(context, created);
      return { artifact: created.artifact };
    } catch (error) {
      await context.printNote(colorFailure(describeFailure(error).line, context.stderrStyle));
      return { artifact: null };
    }
  };
  const code = await runTurn(context, { ...options, onEnded });
  const isKept = kept.length > 0;
  return { code: isKept || (code !== undefined && code !== EXIT.done) ? code : EXIT.failed, isKept };
}

async function noteStays(context: Context, session: string): Promise<void> {
  const { name } = (await context.call('session/show', { session })).session;
  await context.printNote(`The session ${sanitizeLine(name)} stays, with its files: nothing of it was kept`);
}

interface TurnOptions {
  readonly kind: TurnKind | undefined;
  readonly input: Buffer;
  readonly attachments?: readonly AttachmentRef[];
  readonly where: Where;
  readonly timeoutMs: number | undefined;
  readonly wait: boolean;
  /** Called when the turn has ended. Resolves with further fields of its JSON. */
  readonly onEnded?: (turn: Turn) => Promise<Readonly<Record<string, unknown>>>;
}

async function runTurn(context: Context, options: TurnOptions): Promise<number | undefined> {
  const interrupts = new TurnInterrupts(context);
  try {
    const { turn, session } = await startTurn(context, options);
    interrupts.setTurn(turn.turnId);
    if (!options.wait) {
      await showStarted(context, turn, session);
      return undefined;
    }
    if (turn.status === 'queued' && turn.ahead > 0) {
      await context.printHint(
        `Waiting for ${pluralize(turn.ahead, 'earlier turn')} in ${sanitizeLine(session.name)}`,
      );
    }
    // The kind is unknown if the profile was deployed after the query above; infer it from the turn's output.
    if (runnerOf(options.kind, turn) === 'conversation')
      return await showAgentTurn(context, turn, undefined, options.onEnded);
    const sinks = createSinks(context, runnerOf(options.kind, turn));
    const ended = await followTurn(context, turn.turnId, sinks);
    const more = await options.onEnded?.(ended);
    return await printResult(context, ended, runnerOf(options.kind, ended), sinks, more);
  } finally {
    interrupts.release();
  }
}

async function startTurn(context: Context, options: TurnOptions): Promise<{ turn: Turn; session: Session }> {
  const { input, kind, where, timeoutMs, attachments = [] } = options;
  const params: Params<'turn/start'> = {
    ...where,
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    // Raw bytes carry the input exactly as typed, without rounding numbers. Empty input needs the field instead.
    ...(input.length === 0 && inputOfKind(kind) === 'prompt' ? { prompt: '' } : {}),
    ...(attachments.length === 0 ? {} : { attachments: [...attachments] }),
    opId: newOpId(),
  };
  context.progress.begin('Starting the turn');
  try {
    return await context.client().call('turn/start', params, {
      ...(input.length === 0 ? {} : { bytes: input }),
      onProgress: (report) => context.progress.update(report),
    });
  } finally {
    context.progress.end();
  }
}

async function showStarted(context: Context, turn: Turn, session: Session): Promise<void> {
  if (context.json) {
    await context.printJson({ ...turnJson(turn, null, false), session: session.name });
    return;
  }
  await context.print(turn.turnId);
  if (turn.ahead > 0) await context.printHint(`Waiting for ${pluralize(turn.ahead, 'earlier turn')}`);
  await context.printHint(`Wait for it: ${context.command(`turn wait ${turn.turnId}`)}`);
}
