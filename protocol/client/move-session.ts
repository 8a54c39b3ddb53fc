import type { Session } from '../entities.ts';
import { HoldfastError } from '../errors.ts';
import { SessionIdSchema } from '../ids.ts';
import type { MethodName, Params, Result } from '../methods.ts';
import type { Arrival, Departure } from '../moves.ts';
import { carryBundle } from './carry-bundle.ts';
import type { CallOptions, CallResult, Progress } from '../wire/shapes.ts';

/** The bytes of a session are sent again from the beginning where a side has nothing to go on with. */
const ATTEMPTS = 5;
const RETRY_MS = 1000;
const WAIT_MS = 1000;

interface Caller {
  call<M extends MethodName>(method: M, params: Params<M>, options?: CallOptions): Promise<Result<M>>;
  callWithBytes<M extends MethodName>(
    method: M,
    params: Params<M>,
    options?: CallOptions,
  ): Promise<CallResult<Result<M>>>;
}

/** A host, as the person calls it. */
export interface MoveHost {
  readonly client: Caller;
  readonly name: string;
}

export interface MoveRequest {
  readonly source: MoveHost;
  readonly target: MoveHost;
  /** Id, name or `profile/name`. */
  readonly session: string;
  /** At the target; default: as at the source, which has to agree with `session` and with what `session/show` answered. */
  readonly profile?: string | undefined;
  readonly name?: string | undefined;
  /** Wait for the session to be idle, rather than fail. */
  readonly wait?: boolean | undefined;
  /** Stops between two steps. The move can go on later, or be given up. */
  readonly signal: AbortSignal;
  readonly onProgress: (progress: Progress) => void;
}

export interface Moved {
  readonly departure: Departure;
  /** Null if the session was deleted at the target since. */
  readonly arrival: Arrival;
  /** Secrets of the source by name, for this profile or for all, that the target has none of. */
  readonly lacks: readonly string[];
  /** Why the source has not deleted what is left of the session; null: it has. */
  readonly leftover: HoldfastError | null;
}

/**
 * Moves a session between two hosts, or goes on with its move. The session lives at the source until `move/release`, and at the target from
 * `move/activate`; whoever is cut off or killed in between, the same call again goes on. Errors: those of the methods.
 */
export async function moveSession(request: MoveRequest): Promise<Moved> {
  const { source, target, signal } = request;
  const stage = (text: string): void => request.onProgress({ stage: text, done: null, of: null, unit: null });
  stage(`Asking ${target.name}`);
  const [from, to] = await Promise.all(
    [source, target].map(({ client }) => client.call('move/identity', {}, { signal })),
  );
  if (from === undefined || to === undefined) throw new RangeError('two hosts have two identities');
  const shown = await show(request);
  await requireProfile(request, shown);
  stage('Stopping the session');
  const begun = await begin(request, to);
  await requireAsked(request, shown, begun);
  const place = {
    offer: begun.offer,
    publicKey: begun.publicKey,
    profile: request.profile ?? begun.profile,
    name: request.name ?? begun.name,
  };
  const arrived = await bring(request, begun, place);
  const lacks = await missingSecrets(request, place.profile);
  stage('Letting go of the session');
  const departure = begun.receipt === null ? await release(request, begun, arrived) : begun;
  stage(`Starting the session on ${target.name}`);
  if (departure.receipt === null) throw new RangeError('what is released has a receipt');
  const arrival = await target.client.call(
    'move/activate',
    { move: begun.move, receipt: departure.receipt },
    // Nothing is gained by stopping here: the session lives nowhere until this has answered.
    {},
  );
  stage('Removing what is left');
  const { activation } = arrival;
  // It lives there in any case.
  const leftover = activation === null ? null : await finish(source, departure, activation);
  return { departure, arrival, lacks, leftover };
}

async function finish(
  { client, name }: MoveHost,
  { move, sessionId }: Departure,
  activation: Params<'move/finish'>['activation'],
): Promise<HoldfastError | null> {
  try {
    await client.call('move/finish', { move, activation }, {});
    return null;
  } catch (cause) {
    const { code, message, why } = HoldfastError.from(cause);
    return new HoldfastError(code, `What is left of the session on ${name} was not deleted`, {
      why: why ?? message,
      next:
        // The target's key was replaced since the move began: it can prove no more that the session lives there.
        code === 'permission_denied'
          ? `delete it with \`holdfast session delete ${sessionId} --force${name === 'local' ? '' : ` --host ${name}`}\``
          : 'repeat the move when that is put right',
      cause,
    });
  }
}

/**
 * Keeps a session at its source. `discarded`: true if something had arrived at the target and is deleted; null: the target was not asked, or
 * has failed with `failure`, and the same again asks it again.
 */
export async function abortMove(
  source: MoveHost,
  session: string,
  findTarget: (home: string) => MoveHost | null,
): Promise<{
  readonly to: string;
  readonly discarded: boolean | null;
  readonly failure: HoldfastError | null;
}> {
  const { move, to, withdrawal } = await source.client.call('move/abort', { session });
  const target = findTarget(to.home);
  if (target === null) return { to: to.name, discarded: null, failure: null };
  try {
    const { discarded } = await target.client.call('move/discard', { move, withdrawal });
    return { to: target.name, discarded, failure: null };
  } catch (error) {
    return { to: target.name, discarded: null, failure: HoldfastError.from(error) };
  }
}

async function begin(
  { source, target, session, wait, signal, onProgress }: MoveRequest,
  to: Result<'move/identity'>,
): Promise<Departure> {
  for (;;) {
    try {
      const { home, publicKey } = to;
      return await source.client.call(
        'move/begin',
        { session, to: { home, publicKey, name: target.name } },
        { signal, onProgress },
      );
    } catch (error) {
      const isBusy =
        error instanceof HoldfastError && error.code === 'conflict' && error.details?.['live'] !== undefined;
      if (wait !== true || !isBusy) throw error;
      onProgress({ stage: `Waiting: ${error.why ?? error.message}`, done: null, of: null, unit: null });
      await pause(WAIT_MS, signal);
    }
  }
}

type Place = Params<'move/status'>;

/** The session is at the target, complete and held. */
async function bring(request: MoveRequest, begun: Departure, place: Place): Promise<Arrival> {
  const { target, signal } = request;
  for (let attempt = 1; ; attempt += 1) {
    // What was sent is complete, or nothing of it is there.
    const found = await statusAt(request, begun, place);
    if (found.state !== 'unknown') return found;
    if (begun.state !== 'leaving')
      throw new HoldfastError('not_found', `Session ${begun.name} is not on ${target.name}`, {
        why: `it was released to ${begun.to.name}, but does not exist there`,
        next: 'if that machine was set up again, create a session from the last snapshot with `holdfast snapshot fork`',
      });
    try {
      await send(request, begun, place);
    } catch (error) {
      const isCut =
        error instanceof HoldfastError &&
        ['connection_closed', 'shutting_down', 'interrupted', 'overloaded'].includes(error.code);
      if (!isCut || attempt === ATTEMPTS || signal.aborted) throw error;
      await pause(RETRY_MS * attempt, signal);
    }
  }
}

/** A session that the target cannot take stays at its source, and can be used. */
async function statusAt(request: MoveRequest, begun: Departure, place: Place): Promise<Arrival> {
  const { source, target, signal } = request;
  try {
    return await target.client.call('move/status', place, { signal });
  } catch (error) {
    const isRefused =
      error instanceof HoldfastError && (error.code === 'not_found' || error.code === 'already_exists');
    if (isRefused) await giveBack(source, begun);
    throw error;
  }
}

async function giveBack(source: MoveHost, { state, sessionId }: Departure): Promise<void> {
  if (state === 'leaving')
    await source.client.call('move/abort', { session: sessionId }).catch(() => undefined);
}

type Shown = Pick<Session, 'profile' | 'name' | 'move'>;

/** Null: it has moved already, or `move/begin` says what it is about. */
async function show({ source, session, signal }: MoveRequest): Promise<Shown | null> {
  const shown = await source.client.call('session/show', { session }, { signal }).catch(() => null);
  return shown?.session ?? null;
}

/**
 * The source says which session it let go of. Another machine may lie, and so choose the profile that its session gets here: what this
 * session may reach, and the secrets it gets.
 */
async function requireAsked(
  { source, session, profile, name }: MoveRequest,
  shown: Shown | null,
  begun: Departure,
): Promise<void> {
  const slash = session.indexOf('/');
  const asked =
    slash > 0
      ? { profile: session.slice(0, slash), name: session.slice(slash + 1) }
      : {
          profile: shown?.profile,
          name: SessionIdSchema.safeParse(session).success ? shown?.name : session,
        };
  const isOther = (answer: string, wanted: string | undefined): boolean =>
    wanted !== undefined && answer.normalize('NFC') !== wanted.normalize('NFC');
  const differs =
    (profile === undefined && isOther(begun.profile, asked.profile)) ||
    (name === undefined && isOther(begun.name, asked.name));
  if (!differs) return;
  await giveBack(source, begun);
  throw new HoldfastError('permission_denied', `Session ${session} is not moved`, {
    why: `${source.name} answered with the session ${begun.profile}/${begun.name}, which is another one`,
    next: 'name profile and name of the session with --profile and --name',
  });
}

/** Says what is most often missing before anything is stopped. */
async function requireProfile({ target, profile, signal }: MoveRequest, shown: Shown | null): Promise<void> {
  if (shown?.move !== null) return;
  const wanted = profile ?? shown.profile;
  const { profiles } = await target.client.call('profile/list', {}, { signal });
  if (profiles.some(({ name }) => name === wanted)) return;
  throw new HoldfastError('not_found', `Session ${shown.name} is not moved`, {
    why: `${target.name} has no profile named ${wanted}`,
    next: `deploy it there (\`holdfast deploy DIR --host ${target.name}\`), or name another one with --profile`,
  });
}

async function send(request: MoveRequest, begun: Departure, place: Place): Promise<void> {
  const { source, target, signal, onProgress } = request;
  const { bundle: leaving } = await beginExport(request, begun);
  try {
    const { bundle: arriving } = await target.client.call(
      'move/import',
      { ...place, from: source.name },
      { signal },
    );
    try {
      await carryBundle({
        ...{ source: source.client, target: target.client, leaving, arriving, signal },
        onProgress: (done) =>
          onProgress({ stage: `Sending it to ${target.name}`, done, of: null, unit: 'bytes' }),
      });
      onProgress({ stage: `Checking it on ${target.name}`, done: null, of: null, unit: null });
      await target.client.call('bundle/commit', { bundle: arriving }, { signal });
    } catch (error) {
      // A supervisor that cannot be reached gives it up by itself.
      await target.client.call('bundle/abort', { bundle: arriving }).catch(() => undefined);
      throw error;
    }
  } finally {
    await source.client.call('bundle/abort', { bundle: leaving }).catch(() => undefined);
  }
}

/** A session that no bundle can hold stays at its source, and can be used. */
async function beginExport(
  { source, signal }: MoveRequest,
  begun: Departure,
): Promise<Result<'move/export'>> {
  try {
    return await source.client.call('move/export', { move: begun.move }, { signal });
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'not_supported') await giveBack(source, begun);
    throw error;
  }
}

async function release(request: MoveRequest, begun: Departure, arrived: Arrival): Promise<Departure> {
  const { acceptance, state } = arrived;
  if (acceptance === null)
    throw new HoldfastError('conflict', `Session ${begun.name} is not moved`, {
      why: `what had arrived on ${request.target.name} ${state === 'active' ? 'is used there already' : 'was deleted there'}`,
      next: `cancel the move with \`holdfast session move ${begun.sessionId} --abort\`, and begin again`,
    });
  request.signal.throwIfAborted();
  return await request.source.client.call('move/release', { move: begun.move, acceptance }, {});
}

async function missingSecrets({ source, target }: MoveRequest, profile: string): Promise<string[]> {
  const [here, there] = await Promise.all(
    [source, target].map(async ({ client }) => (await client.call('secret/list', {})).secrets),
  );
  const known = new Set(
    (there ?? []).filter((one) => one.profile === null || one.profile === profile).map(({ name }) => name),
  );
  const names = (here ?? [])
    .filter((one) => one.profile === null || one.profile === profile)
    .flatMap(({ name }) => (known.has(name) ? [] : [name]));
  return [...new Set(names)];
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  await new Promise<void>((resolve) => {
    const timer = setTimeout(end, ms);
    function end(): void {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    }
    signal.addEventListener('abort', end, { once: true });
  });
  signal.throwIfAborted();
}
