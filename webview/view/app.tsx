import { useEffect, useReducer, useState } from 'preact/hooks';
import type { Session } from '../../protocol/entities.ts';
import { plain } from '../format.ts';
import type { PageModel } from '../page-model.ts';
import { FILTERS } from '../timeline.ts';
import type { Filter } from '../timeline.ts';
import { Icon } from './icon.tsx';
import { LateView } from './late-view.tsx';
import { PromptBox } from './prompt-box.tsx';
import { TimelineView } from './timeline-view.tsx';

const TABS = { conversation: 'Conversation', snapshots: 'Snapshots', record: 'Manifest' } as const;
type Tab = keyof typeof TABS;
const FILTER_NAMES: Readonly<Record<Filter, string>> = {
  all: 'All',
  changes: 'Changes',
  commands: 'Commands',
  questions: 'Questions',
};

export function App({ model }: { readonly model: PageModel }) {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const [tab, setTab] = useState<Tab>(model.saved.tab ?? 'conversation');
  const [filter, setFilter] = useState<Filter>('all');
  const find = (): void => {
    show('conversation');
    // What is found may be of any kind.
    setFilter('all');
    model.find(true);
  };
  const show = (next: Tab): void => {
    setTab(next);
    model.keep({ tab: next });
  };
  useEffect(() => {
    model.onChange(() => redraw(undefined));
    model.onShow = show;
    model.start();
    window.addEventListener('keydown', (event) => {
      if (event.key !== 'f' || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
      event.preventDefault();
      find();
    });
  }, [model]);
  return (
    <>
      <Header model={model} tab={tab} onTab={show} filter={filter} onFilter={setFilter} onFind={find} />
      <Banner model={model} />
      <main>
        {tab === 'conversation' && model.isFinding && <LateView model={model} name="find" />}
        {tab === 'conversation' && <TimelineView model={model} filter={filter} />}
        {tab !== 'conversation' && <LateView key={tab} model={model} name={tab} />}
      </main>
      {model.failure !== null && (
        <div class="banner failure" role="alert">
          <Icon name="error" /> <span>{plain(model.failure)}</span>
          <button class="icon" aria-label="Dismiss" title="Dismiss" onClick={() => model.dismiss()}>
            <Icon name="close" />
          </button>
        </div>
      )}
      <PromptBox model={model} isShown={tab === 'conversation'} />
    </>
  );
}

interface HeaderProps {
  readonly model: PageModel;
  readonly tab: Tab;
  readonly onTab: (tab: Tab) => void;
  readonly filter: Filter;
  readonly onFilter: (filter: Filter) => void;
  readonly onFind: () => void;
}

function Header({ model, tab, onTab, filter, onFilter, onFind }: HeaderProps) {
  const { session } = model.state;
  return (
    <header>
      <div class="title">
        <h1>
          {session === null ? 'Session' : plain(session.name === session.id ? session.profile : session.name)}
        </h1>
        {session !== null && <Status session={session} />}
        <span class="tools">
          <button class="icon" title="Find in the conversation (Ctrl+F)" aria-label="Find" onClick={onFind}>
            <Icon name="search" />
          </button>
          <ToolButton model={model} command="openWorkspace" icon="folder-opened" title="Open the workspace" />
          <ToolButton
            model={model}
            command="openTerminal"
            icon="terminal"
            title="Open a terminal in the sandbox"
          />
          <ToolButton model={model} command="createSnapshot" icon="device-camera" title="Create a snapshot" />
          <ToolButton model={model} command="showHistory" icon="history" title="Show every event" />
        </span>
      </div>
      <div class="tabs">
        <div role="tablist" aria-label="Parts of the session">
          {(Object.keys(TABS) as Tab[]).map((one) => (
            <button key={one} role="tab" aria-selected={tab === one} onClick={() => onTab(one)}>
              {TABS[one]}
            </button>
          ))}
        </div>
        {tab === 'conversation' && (
          <div class="filters" role="group" aria-label="Show">
            {FILTERS.map((one) => (
              <button key={one} aria-pressed={filter === one} onClick={() => onFilter(one)}>
                {FILTER_NAMES[one]}
              </button>
            ))}
          </div>
        )}
      </div>
    </header>
  );
}

interface ToolButtonProps {
  readonly model: PageModel;
  readonly command: 'openWorkspace' | 'openTerminal' | 'createSnapshot' | 'showHistory';
  readonly icon: string;
  readonly title: string;
}

function ToolButton({ model, command, icon, title }: ToolButtonProps) {
  return (
    <button
      class="icon"
      title={title}
      aria-label={title}
      disabled={model.state.session === null}
      onClick={() => void model.ask('command', { command })}
    >
      <Icon name={icon} />
    </button>
  );
}

function Status({ session }: { readonly session: Session }) {
  const [word, kind] = statusOf(session);
  return (
    <span class={`status ${kind}`}>
      {word} <span class="quiet">· {plain(session.profile)}</span>
    </span>
  );
}

function statusOf({ runningTurn, queuedTurns, hydration, status }: Session): [string, string] {
  if (runningTurn !== null)
    return [queuedTurns > 0 ? `running, ${queuedTurns} queued` : 'running', 'running'];
  if (hydration !== null) return ['copying files', 'busy'];
  return [status, status];
}

/** What keeps the page from being up to date or from acting, and the next step. */
function Banner({ model }: { readonly model: PageModel }) {
  const { host, why, session, isDeleted } = model.state;
  if (isDeleted) {
    return (
      <Message icon="trash">
        This session was deleted. A last snapshot of its files is kept for a week.
      </Message>
    );
  }
  switch (host) {
    case 'connecting':
      return (
        <Message icon="loading" spin>
          Connecting to the supervisor. What you see may be out of date.
        </Message>
      );
    case 'offline':
      return (
        <Message icon="debug-disconnect" isWarning>
          {why ?? 'No supervisor answers.'}{' '}
          <button class="link" onClick={() => void model.ask('command', { command: 'connect' })}>
            Connect
          </button>
        </Message>
      );
    case 'engine-down':
      return (
        <Message icon="warning" isWarning>
          {why ?? 'Docker is not running.'} The agent cannot work until it runs.{' '}
          <button class="link" onClick={() => void model.ask('command', { command: 'checkEngine' })}>
            Check Again
          </button>
        </Message>
      );
    case 'connected':
      break;
  }
  if (session?.hydration !== null && session?.hydration !== undefined) {
    const { failed } = session.hydration;
    if (failed !== null) {
      return (
        <Message icon="warning" isWarning>
          The files of the snapshot could not be copied: {plain(failed.why)}. The next use of the session
          tries again.
        </Message>
      );
    }
    return (
      <Message icon="loading" spin>
        Copying the files of the snapshot into the workspace.
      </Message>
    );
  }
  if (session?.status === 'expired') {
    return (
      <Message icon="history">
        This session has expired. Its files are kept; the next prompt starts a new sandbox.{' '}
        <button class="link" onClick={() => void model.ask('command', { command: 'resumeSession' })}>
          Resume…
        </button>
      </Message>
    );
  }
  return null;
}

interface BannerProps {
  readonly icon: string;
  readonly spin?: boolean;
  readonly isWarning?: boolean;
  readonly children: preact.ComponentChildren;
}

function Message({ icon, spin = false, isWarning = false, children }: BannerProps) {
  return (
    <div class={`banner${isWarning ? ' warning' : ''}`} role="status">
      <Icon name={icon} spin={spin} /> <span>{children}</span>
    </div>
  );
}
