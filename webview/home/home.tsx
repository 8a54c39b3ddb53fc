import { useEffect, useReducer, useState } from 'preact/hooks';
import { formatCount, plain } from '../format.ts';
import { NEEDS } from '../home-messages.ts';
import type { HomeHost, HomeSession, HomeState, Need } from '../home-messages.ts';
import { Icon } from '../view/icon.tsx';
import { FirstRun, isFirstRun } from './first-run.tsx';
import type { HomeModel } from './home-model.ts';
import { SessionCard } from './session-card.tsx';
import { StartForm } from './start-form.tsx';

const NAMES: Readonly<Record<Need, string>> = {
  waiting: 'Waiting for you',
  running: 'Running',
  paused: 'Paused',
  earlier: 'Earlier',
};
/** Sessions of a group that are drawn at first, and with each *Show More*. */
const SHOWN = 20;

export function Home({ model }: { readonly model: HomeModel }) {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    model.onChange(() => redraw(undefined));
    void model.start();
  }, [model]);
  const { state } = model;
  if (state === null)
    return (
      <p class="center" role="status">
        Loading…
      </p>
    );
  const isFirst = isFirstRun(model, state);
  return (
    <>
      {state.hosts.map((host, index) => (
        <HostBanner
          key={host.name}
          model={model}
          host={host}
          isAlone={state.hosts.length === 1}
          isOwn={index === 0}
          isHidden={isFirst && index === 0}
        />
      ))}
      <main class="home">
        <div class="column">
          <h1>What should the agent do?</h1>
          <StartForm model={model} state={state} />
          {isFirst && <FirstRun model={model} state={state} />}
          <Sessions model={model} state={state} />
          {!isFirst && <Foot model={model} />}
        </div>
      </main>
      {model.failure !== null && (
        <div class="banner failure" role="alert">
          <Icon name="error" /> <span>{plain(model.failure)}</span>
          <button class="icon" aria-label="Dismiss" title="Dismiss" onClick={() => model.dismiss()}>
            <Icon name="close" />
          </button>
        </div>
      )}
    </>
  );
}

function Sessions({ model, state }: { readonly model: HomeModel; readonly state: HomeState }) {
  if (!state.isListed)
    return (
      <p class="center quiet" role="status">
        Loading the sessions…
      </p>
    );
  return (
    <>
      {NEEDS.map((need) => (
        <Group key={need} model={model} state={state} need={need} />
      ))}
      {model.left > 0 && <p class="quiet">{formatCount(model.left, 'more session')} in the Sessions view.</p>}
    </>
  );
}

function Foot({ model }: { readonly model: HomeModel }) {
  return (
    <p class="foot">
      <button class="link" onClick={() => void model.ask('command', { command: 'setSecret' })}>
        Set Secret…
      </button>
      <button class="link" onClick={() => void model.ask('command', { command: 'showLog' })}>
        Show Log
      </button>
    </p>
  );
}

interface GroupProps {
  readonly model: HomeModel;
  readonly state: HomeState;
  readonly need: Need;
}

function Group({ model, state, need }: GroupProps) {
  const [most, setMost] = useState(SHOWN);
  const sessions = model.sessionsOf(need);
  if (sessions.length === 0) return null;
  const id = `group-${need}`;
  return (
    <section class={`group ${need}`} aria-labelledby={id}>
      <h2 id={id}>
        {NAMES[need]} <span class="quiet">{sessions.length}</span>
      </h2>
      <ul>
        {sessions.slice(0, most).map((session) => (
          <SessionCard key={session.id} model={model} session={session} host={hostTitleOf(state, session)} />
        ))}
      </ul>
      {sessions.length > most && (
        <button class="link" onClick={() => setMost(most + SHOWN)}>
          {`Show ${Math.min(SHOWN, sessions.length - most)} More`}
        </button>
      )}
    </section>
  );
}

/** Null where there is only one host. */
function hostTitleOf({ hosts }: HomeState, { host }: HomeSession): string | null {
  if (hosts.length === 1) return null;
  return hosts.find(({ name }) => name === host)?.title ?? host;
}

interface HostBannerProps {
  readonly model: HomeModel;
  readonly host: HomeHost;
  readonly isAlone: boolean;
  /** The host of the window. */
  readonly isOwn: boolean;
  readonly isHidden: boolean;
}

/** Why what the page shows of a host may be out of date, or why nothing can start there, and the next step. */
function HostBanner({ model, host, isAlone, isOwn, isHidden }: HostBannerProps) {
  const { name, title, state, why } = host;
  if (state === 'connected' || isHidden) return null;
  const where = isAlone ? '' : `${plain(title)}: `;
  const connect = () => void model.ask('connectHost', { host: name });
  return (
    <div class={`banner${state === 'connecting' ? '' : ' warning'}`} role="status">
      <Icon
        name={state === 'connecting' ? 'loading' : state === 'offline' ? 'debug-disconnect' : 'warning'}
        spin={state === 'connecting'}
      />
      <span>
        {where}
        {state === 'connecting' && 'Connecting to the supervisor. What you see may be out of date.'}
        {state === 'offline' && plain(why ?? 'No supervisor answers.')}
        {state === 'engine-down' &&
          `${plain(why ?? 'Docker is not running.')} No agent works there until it runs.`}
        {state === 'offline' && (
          <>
            {' '}
            <button class="link" onClick={connect}>
              Connect
            </button>
          </>
        )}
        {state === 'engine-down' && isOwn && (
          <>
            {' '}
            <button class="link" onClick={() => void model.ask('command', { command: 'checkEngine' })}>
              Check Again
            </button>
          </>
        )}
      </span>
    </div>
  );
}
