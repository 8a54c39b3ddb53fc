import { randomUUID } from 'node:crypto';
import type { CheckResult, CheckSubject } from '../../protocol/checks.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Result } from '../../protocol/methods.ts';
import type { Context } from '../context.ts';
import { EXIT } from '../failure.ts';
import type { Registry } from '../registry.ts';
import { quoteForShell, sanitizeLine, sanitizeLines } from '../render/text.ts';

/** Unwritten output above which the client stops reading from the supervisor, UTF-16 units. */
const BACKLOG = 2 ** 20;

interface CheckOptions {
  readonly accepted?: boolean;
  readonly list?: boolean;
  readonly again?: boolean;
}

/** `check SESSION [NAME]`: exit code 1 if a check failed. */
export function registerCheck(registry: Registry): void {
  const command = registry
    .command(registry.root, {
      usage: 'check <session> [name]',
      description: 'run the checks of the profile, or one of them; exits with 1 if one fails',
      operands: ['session'],
      examples: [
        'holdfast check default',
        'holdfast check default test --accepted      on exactly what you accepted in the review',
        'holdfast check default --list               their newest results',
      ],
    })
    .option(
      '--accepted',
      'check the accepted tree of the review, with its ignored files, in a separate sandbox',
    )
    .option('--again', 'with --accepted: also if it passed on the same tree before')
    .option('--list', 'only show the checks and their newest results');
  registry.setAction(
    command,
    async (context, options: CheckOptions, session: string, name: string | undefined) => {
      const of = options.accepted === true ? ('accepted' as const) : undefined;
      const { checks } = await context.call('check/list', { session, ...(of === undefined ? {} : { of }) });
      const chosen = name === undefined ? checks : checks.filter((one) => one.name === name);
      if (chosen.length === 0) throw unknownCheck(name, checks);
      if (options.list === true) {
        if (context.json) await context.printJson({ checks: chosen });
        else
          await context.print(
            ...chosen.map(
              ({ name: one, last }) =>
                `${one}  ${last === null ? 'has no result yet' : outcome(context, last)}`,
            ),
          );
        return undefined;
      }
      const results: (CheckResult & { readonly cached: boolean })[] = [];
      for (const { name: one, command: line } of chosen) {
        if (!context.json)
          await context.printNote(context.stderrStyle.dim(`${sanitizeLine(one)}: ${sanitizeLine(line)}`));
        const { check, cached } = await runOne(
          context,
          session,
          one,
          of ?? 'workspace',
          options.again === true,
        );
        results.push({ ...check, cached });
        const before = cached ? ', before: it was not run again' : '';
        if (!context.json) await context.print(`${one}  ${outcome(context, check)}${before}`);
      }
      if (context.json) await context.printJson({ checks: results });
      return results.every(({ exitCode }) => exitCode === 0) ? undefined : EXIT.failed;
    },
  );
}

function unknownCheck(name: string | undefined, checks: readonly { readonly name: string }[]): HoldfastError {
  if (name === undefined || checks.length === 0) {
    return new HoldfastError('not_found', 'The profile has no checks', {
      next: 'add some to holdfast.yaml (checks: { test: npm test }) and deploy it again',
    });
  }
  return new HoldfastError('not_found', `The profile has no check ${quoteForShell(name)}`, {
    next: `it has ${checks.map((one) => one.name).join(', ')}`,
  });
}

function outcome(context: Context, { exitCode, ms, tree, review }: CheckResult): string {
  const { style } = context;
  const ended = exitCode === 0 ? style.green('passed') : style.red(`failed with exit code ${exitCode}`);
  const what = review === null ? 'the workspace' : `what is accepted in ${review.id}`;
  return `${ended} after ${(ms / 1000).toFixed(1)} s, on ${what} (tree ${tree.slice(0, 12)})`;
}

/** Shows the output of a check while it runs, on standard error, so that standard output has the results alone. */
async function runOne(
  context: Context,
  session: string,
  name: string,
  of: CheckSubject,
  again: boolean,
): Promise<Result<'check/run'>> {
  const output = randomUUID();
  const peer = await context.client().peer();
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  let writing = Promise.resolve();
  let backlog = 0;
  let readOn: (() => void) | undefined;
  const stop = peer.onNotification('check/output', (params, bytes) => {
    if (params.output !== output || context.json) return;
    // What is judged decides what is printed: it must not move the cursor over the results.
    const text = sanitizeLines(decoders[params.stream].decode(bytes, { stream: true }));
    context.progress.hide();
    // A terminal that is slower than the check must not fill the memory.
    backlog += text.length;
    if (backlog > BACKLOG) readOn ??= peer.pauseReading();
    writing = writing.then(async () => {
      await context.stderr.write(text);
      backlog -= text.length;
      if (backlog > BACKLOG / 2) return;
      readOn?.();
      readOn = undefined;
    });
    writing.catch(() => {
      readOn?.();
      readOn = undefined;
    });
  });
  try {
    const ended = await context.call(
      'check/run',
      { session, name, of, again, output },
      { stage: `Running ${name}` },
    );
    await writing;
    return ended;
  } finally {
    stop();
  }
}
