import { formatCount, plain } from '../format.ts';
import type { HomeState } from '../home-messages.ts';
import { Icon } from '../view/icon.tsx';
import type { HomeModel } from './home-model.ts';

interface Props {
  readonly model: HomeModel;
  readonly state: HomeState;
}

/** Whether the page shows the way to a first session: there is none yet, or none could start. */
export function isFirstRun(model: HomeModel, { isListed, images }: HomeState): boolean {
  return images === 'missing' || (isListed && model.count === 0);
}

type Done = 'done' | 'now' | 'busy' | 'later';
const ICONS: Readonly<Record<Done, { name: string; spin?: boolean }>> = {
  done: { name: 'pass' },
  now: { name: 'circle-large-outline' },
  busy: { name: 'loading', spin: true },
  later: { name: 'circle-large-outline' },
};

/** What a machine needs before its first session, each step with its button. */
export function FirstRun({ model, state }: Props) {
  const [own] = state.hosts;
  const hasEngine = own?.state === 'connected';
  const { images, secrets } = state;
  return (
    <section class="first-run" aria-labelledby="first-run">
      <h2 id="first-run">Get started</h2>
      <ol>
        <Step done={hasEngine ? 'done' : own?.state === 'connecting' ? 'busy' : 'now'} title="Docker">
          {hasEngine && 'Running.'}
          {own?.state === 'connecting' && 'Connecting to the supervisor…'}
          {own?.state === 'engine-down' && (
            <>
              {plain(own.why ?? 'Docker is not running.')} Start it, then{' '}
              <button class="link" onClick={() => void model.ask('command', { command: 'checkEngine' })}>
                Check Again
              </button>
            </>
          )}
          {own?.state === 'offline' && (
            <>
              {plain(own.why ?? 'No supervisor answers.')}{' '}
              <button class="link" onClick={() => void model.ask('connectHost', { host: own.name })}>
                Connect
              </button>
            </>
          )}
        </Step>
        <Step
          done={images === 'there' ? 'done' : images === 'checking' ? 'busy' : hasEngine ? 'now' : 'later'}
          title="Images"
        >
          {images === 'there' && 'On the engine.'}
          {images === 'checking' && 'Looking for them…'}
          {images === null && 'Sandboxes start from two images.'}
          {images === 'missing' && (
            <>
              Sandboxes start from two images, which this machine does not have yet.{' '}
              <button class="primary" onClick={() => void model.ask('command', { command: 'buildImages' })}>
                Build Images
              </button>
            </>
          )}
        </Step>
        <Step
          done={model.count > 0 ? 'done' : hasEngine && images !== 'missing' ? 'now' : 'later'}
          title="A first session"
        >
          Press <em>Start</em> above: the example is an agent that counts its turns. Or open a folder of
          yours.{' '}
          <button class="link" onClick={() => void model.ask('openFolder', {})}>
            Open Folder…
          </button>
        </Step>
        <Step
          done={secrets !== null && secrets > 0 ? 'done' : 'later'}
          title="A key, for agents that need one"
        >
          {secrets !== null && secrets > 0
            ? `${formatCount(secrets, 'secret')}. `
            : 'It stays outside of the sandbox. The example needs none. '}
          <button class="link" onClick={() => void model.ask('command', { command: 'setSecret' })}>
            Set Secret…
          </button>
        </Step>
      </ol>
    </section>
  );
}

interface StepProps {
  readonly done: Done;
  readonly title: string;
  readonly children: preact.ComponentChildren;
}

function Step({ done, title, children }: StepProps) {
  return (
    <li class={done}>
      <Icon {...ICONS[done]} />
      <div>
        <h3>
          {title}
          <span class="hidden">{done === 'done' ? ', done' : ''}</span>
        </h3>
        <p>{children}</p>
      </div>
    </li>
  );
}
