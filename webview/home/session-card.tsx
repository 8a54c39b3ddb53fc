import { useEffect, useRef } from 'preact/hooks';
import { formatBytes, formatCount, formatTime, plain } from '../format.ts';
import type { HomeSession, LastMessage, SessionCommand } from '../home-messages.ts';
import { Icon } from '../view/icon.tsx';
import type { HomeModel } from './home-model.ts';
import { Questions } from './questions.tsx';

interface Props {
  readonly model: HomeModel;
  readonly session: HomeSession;
  /** Null where there is only one. */
  readonly host: string | null;
}

/** A session: what it needs, what it was asked, what it said last, and the next step. */
export function SessionCard({ model, session, host }: Props) {
  const card = useRef<HTMLLIElement>(null);
  const isVisible = useRef(false);
  const latest = useRef(session);
  latest.current = session;
  useEffect(() => {
    const element = card.current;
    if (element === null) return undefined;
    const observer = new IntersectionObserver(([entry]) => {
      isVisible.current = entry?.isIntersecting === true;
      if (isVisible.current) model.wantWords(latest.current);
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [model]);
  useEffect(() => {
    if (isVisible.current) model.wantWords(session);
  }, [model, session]);
  const words = model.wordsOf(session);
  const questions = session.reason === 'asks' ? (words?.questions ?? []) : [];
  const question = session.reason === 'asks' && questions.length === 0 ? (words?.asks ?? null) : null;
  const said = question === null && questions.length === 0 ? (words?.words ?? null) : null;
  const title = plain(session.title);
  const facts = [
    plain(session.profile) === title ? null : plain(session.profile),
    host === null ? null : plain(host),
    words === undefined || words.changedFiles === null
      ? null
      : formatCount(words.changedFiles, 'changed file'),
    session.bytes === null ? null : formatBytes(session.bytes),
    formatTime(session.lastActiveAt),
  ].filter((fact) => fact !== null);
  return (
    <li ref={card} class={`card${model.started === session.id ? ' started' : ''}`}>
      <div class="head">
        <h3>
          <Icon {...iconOf(session, words)} />{' '}
          <button class="name" onClick={() => run(model, session, 'openSessionPage')}>
            {title}
          </button>
        </h3>
        <span class="how">{plain(statusOf(session, words))}</span>
        <span class="facts quiet">{facts.join(' · ')}</span>
      </div>
      {session.prompt !== null && <p class="asked quiet">{plain(session.prompt)}</p>}
      {question !== null && (
        <p class="said">
          <Icon name="question" /> {plain(question)}
        </p>
      )}
      {said !== null && (
        <p
          class={`said${words?.isFailure === true ? ' failed' : ''}`}
          role={isNew(model, session) ? 'status' : undefined}
        >
          {plain(said)}
        </p>
      )}
      <Questions {...{ model, session, questions }} />
      <Actions {...{ model, session }} isAnswered={questions.length > 0 && words?.moreQuestions === 0} />
    </li>
  );
}

/** The answer of the session that was started on this page is announced. */
function isNew(model: HomeModel, session: HomeSession): boolean {
  return model.started === session.id && session.need !== 'running';
}

const ACTIONS: Readonly<Record<'asks' | 'ended' | 'running', readonly [SessionCommand, string][]>> = {
  asks: [['answerPermission', 'Answer…']],
  ended: [['reviewChanges', 'Review Changes']],
  running: [['cancelTurn', 'Cancel Turn']],
};

interface ActionsProps {
  readonly model: HomeModel;
  readonly session: HomeSession;
  /** All that it asks is answered in place. */
  readonly isAnswered: boolean;
}

/** What is next for a session that needs a person, or that works. All others are opened by their names. */
function Actions({ model, session, isAnswered }: ActionsProps) {
  const { reason, need, title } = session;
  const kind = reason ?? (need === 'running' ? need : null);
  if (kind === null) return null;
  return (
    <div class="actions">
      {(isAnswered ? [] : ACTIONS[kind]).map(([command, label]) => (
        <button
          key={command}
          class={kind === 'asks' ? 'primary' : 'secondary'}
          aria-label={`${label} ${plain(title)}`}
          onClick={() => run(model, session, command)}
        >
          {label}
        </button>
      ))}
      <button
        class="secondary"
        aria-label={`Open ${plain(title)}`}
        onClick={() => run(model, session, 'openSessionPage')}
      >
        Open
      </button>
    </div>
  );
}

function run(model: HomeModel, { id }: HomeSession, command: SessionCommand): void {
  void model.ask('sessionCommand', { command, session: id });
}

function statusOf({ reason, status }: HomeSession, words: LastMessage | undefined): string {
  if (reason === 'asks') return 'asks for permission';
  if (reason === 'ended') return words?.isFailure === true ? 'failed' : 'finished';
  return status;
}

function iconOf(
  { need, reason }: HomeSession,
  words: LastMessage | undefined,
): { name: string; spin?: boolean } {
  if (reason === 'asks') return { name: 'bell-dot' };
  if (reason === 'ended') return { name: words?.isFailure === true ? 'error' : 'pass' };
  switch (need) {
    case 'running':
      return { name: 'loading', spin: true };
    case 'paused':
      return { name: 'debug-pause' };
    default:
      return { name: 'circle-outline' };
  }
}
