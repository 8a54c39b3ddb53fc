import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatCount, formatDuration, formatNumber, plain } from '../format.ts';
import type { PageModel, TurnLines } from '../page-model.ts';
import type { Row } from '../timeline.ts';
import { planEntries } from '../tool-details.ts';
import { Code } from './code.tsx';
import { Icon } from './icon.tsx';

/** What happened beside the conversation: one quiet line, with what can be done about it. */
export function Mark({ model, row }: { model: PageModel; row: Extract<Row, { kind: 'mark' }> }) {
  const { item } = row;
  if (item.type === 'option') {
    return <Line icon="settings">{`${plain(item.option)}: ${plain(item.value)}`}</Line>;
  }
  if (item.type === 'connected') {
    const how = {
      new: '',
      warm: '',
      resumed: ', resumed',
      loaded: ', with its own memory',
      handover: ', from the history',
    };
    return <Line icon="plug">{`${plain(item.name)} ${plain(item.version)}${how[item.how]}`}</Line>;
  }
  switch (item.mark) {
    case 'snapshot': {
      const { snapshotId, label, reason, changedFiles } = item;
      return (
        <Line icon="device-camera" actions={<SnapshotActions model={model} snapshot={snapshotId} />}>
          {`${label === null ? snapshotReason(reason) : plain(label)} · ${changedFiles === 0 ? 'no changed files' : formatCount(changedFiles, 'changed file')}`}
        </Line>
      );
    }
    case 'snapshot-failed':
      return <Line icon="warning">{`No snapshot: ${plain(item.why)}`}</Line>;
    case 'resume-failed':
      return <Line icon="warning">{`setup.resume ${plain(item.why)}`}</Line>;
    case 'restored':
      return (
        <Line icon="history" actions={<SnapshotActions model={model} snapshot={item.snapshotId} />}>
          {item.path === null ? 'Files were restored from a snapshot' : `${plain(item.path)} was restored`}
        </Line>
      );
    case 'newer':
      return <Line icon="info">{`${plain(item.name)}, recorded by a newer Holdfast: update to see it`}</Line>;
    case 'cleaned':
      return <Line icon="trash">{`The workspace was emptied (${formatCount(item.files, 'file')})`}</Line>;
    case 'egress': {
      const { decision, host, port, count, allow } = item;
      const times = count > 1 ? ` (${formatNumber(count)} times)` : '';
      const action =
        decision === 'denied' && allow !== null ? (
          <button class="link" onClick={() => void model.ask('allowHost', { host: allow })}>
            Allow {plain(allow)}…
          </button>
        ) : null;
      return (
        <Line
          icon={decision === 'denied' ? 'shield' : 'globe'}
          actions={action}
          isWarning={decision === 'denied'}
        >
          {`${decision === 'denied' ? 'Denied' : 'Connection'}: ${plain(host)}:${port}${times}`}
        </Line>
      );
    }
    case 'policy':
      return (
        <Line icon="shield">{`${item.action === 'allow' ? 'Allowed' : 'Denied'} ${plain(item.host)}`}</Line>
      );
    case 'forked':
      return <Line icon="repo-forked">Forked from another session. What is above happened there.</Line>;
    case 'restarted':
      return <Line icon="refresh">The turn was started again in a new sandbox</Line>;
    case 'memory':
      return <Line icon="book">{`The memory of the session was changed (version ${item.version})`}</Line>;
    case 'started-over':
      return <Line icon="debug-restart">The agent started over</Line>;
    case 'note':
      return (
        <Line icon={item.icon} isWarning={item.isWarning}>
          {plain(item.note)}
        </Line>
      );
    case 'check':
      return <Check model={model} item={item} />;
  }
}

interface CheckProps {
  readonly model: PageModel;
  readonly item: Extract<Extract<Row, { kind: 'mark' }>['item'], { mark: 'check' }>;
}

/** How a check ended; its output unfolds. */
function Check({ model, item }: CheckProps) {
  const [output, setOutput] = useState<string | null>(null);
  const { name, of, exitCode, ms, contents } = item;
  const sha256 = contents[0]?.sha256;
  const show = (sha: string): void => {
    model
      .request('content', { sha256: sha })
      .then(({ text, isCut }) => setOutput(isCut ? `${text}\n…` : text))
      .catch((error: unknown) => model.fail(error));
  };
  const isPassed = exitCode === 0;
  const facts = [
    `${plain(name)} ${isPassed ? 'passed' : `failed with exit code ${exitCode}`}`,
    ...(of === 'accepted' ? ['on the accepted files'] : []),
    formatDuration(ms),
  ];
  return (
    <>
      <Line
        icon={isPassed ? 'pass' : 'error'}
        isWarning={!isPassed}
        actions={
          sha256 !== undefined && (
            <button
              class="link"
              aria-expanded={output !== null}
              onClick={() => (output === null ? show(sha256) : setOutput(null))}
            >
              {output === null ? 'Show Output' : 'Hide Output'}
            </button>
          )
        }
      >
        {facts.join(' · ')}
      </Line>
      {output !== null && <Code model={model} text={plain(output)} label={`Output of ${plain(name)}`} />}
    </>
  );
}

export function snapshotReason(reason: string): string {
  const text = reason.replaceAll('-', ' ');
  return `Snapshot ${text}`;
}

function SnapshotActions({ model, snapshot }: { model: PageModel; snapshot: string }) {
  return (
    <>
      <button class="link" onClick={() => void model.ask('compareSnapshots', { from: snapshot, to: null })}>
        Compare
      </button>
      <button class="link" onClick={() => model.previewRestore(snapshot)}>
        Restore…
      </button>
      <button class="link" onClick={() => void model.ask('forkSnapshot', { snapshot })}>
        Fork…
      </button>
    </>
  );
}

interface LineProps {
  readonly icon: string;
  readonly children: ComponentChildren;
  readonly actions?: ComponentChildren;
  readonly isWarning?: boolean;
}

function Line({ icon, children, actions, isWarning = false }: LineProps) {
  return (
    <p class={`mark${isWarning ? ' warning' : ''}`}>
      <Icon name={icon} /> <span>{children}</span>
      {Boolean(actions) && <span class="actions">{actions}</span>}
    </p>
  );
}

export function Notice({ row }: { row: Extract<Row, { kind: 'notice' }> }) {
  return (
    <Line icon="info" isWarning>
      {plain(row.item.message)}
    </Line>
  );
}

const PLAN_ICONS = {
  pending: 'circle-large-outline',
  in_progress: 'arrow-circle-right',
  completed: 'pass',
} as const;

export function Plan({ row }: { row: Extract<Row, { kind: 'plan' }> }) {
  const entries = planEntries(row.item.text);
  if (entries.length === 0) return null;
  const done = entries.filter(({ status }) => status === 'completed').length;
  return (
    <section class="plan" aria-label="Plan of the agent">
      <h3>
        Plan
        <span class="quiet"> {`${done} of ${entries.length} done`}</span>
      </h3>
      <ol>
        {entries.map(({ content, status }, index) => (
          <li key={index} class={status}>
            <Icon name={PLAN_ICONS[status]} /> <span>{plain(content)}</span>
            <span class="hidden">{status.replace('_', ' ')}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

const END = {
  succeeded: { icon: 'check', text: 'Done' },
  failed: { icon: 'error', text: 'Failed' },
  cancelled: { icon: 'circle-slash', text: 'Cancelled' },
  timeout: { icon: 'watch', text: 'Timed out' },
  interrupted: { icon: 'debug-disconnect', text: 'Interrupted' },
  queued: { icon: 'clock', text: 'Queued' },
  running: { icon: 'loading', text: 'Running' },
} as const;

/** How a turn ended, and what can be done with what it did. */
export function TurnEnd({ model, row }: { model: PageModel; row: Extract<Row, { kind: 'end' }> }) {
  const { status, error, turnMs, turnId, exitCode, text } = row.item;
  const { icon, text: word } = END[status];
  // One that was taken back did nothing, and what a person ended is no failure.
  const hasBegun = status !== 'cancelled' || turnMs !== null;
  const tokens = row.usage?.totalTokens ?? null;
  const cost = row.usage?.cost ?? null;
  const facts = [
    turnMs === null ? null : formatDuration(turnMs),
    exitCode === null || exitCode === 0 ? null : `exit code ${exitCode}`,
    tokens === null ? null : `${formatNumber(tokens)} tokens`,
    cost === null ? null : `${cost.amount.toFixed(2)} ${plain(cost.currency)}`,
  ].filter((fact) => fact !== null);
  return (
    <>
      {text !== null && text !== '' && text !== 'null' && (
        <div class="output result">
          <span class="label">Result</span>
          <Code model={model} text={plain(pretty(text))} label="Result" language="json" />
        </div>
      )}
      {error !== null && status !== 'cancelled' && (
        <div class="error">
          <p>
            <Icon name="error" /> {plain(error.message)}
          </p>
          {error.traceback !== null && (
            <details>
              <summary>Traceback</summary>
              <pre tabIndex={0}>{plain(error.traceback)}</pre>
            </details>
          )}
        </div>
      )}
      <footer class={`end ${status}`}>
        <span class="how">
          <Icon name={icon} /> {[hasBegun ? word : 'Taken back', ...facts].join(' · ')}
          {turnId !== null && hasBegun && <Lines model={model} turnId={turnId} />}
        </span>
        {turnId !== null && hasBegun && (
          <span class="actions">
            <button class="link" onClick={() => void model.ask('changesOfTurn', { turnId })}>
              See Changes
            </button>
            <button class="link" onClick={() => void model.previewRestoreBefore(turnId)}>
              Restore to Before…
            </button>
            <button class="link" onClick={() => void model.ask('forkBeforeTurn', { turnId })}>
              Fork from Before…
            </button>
          </span>
        )}
      </footer>
    </>
  );
}

/** What the turn changed on disk, once somebody looks at its end. */
function Lines({ model, turnId }: { readonly model: PageModel; readonly turnId: string }) {
  const place = useRef<HTMLSpanElement>(null);
  // The row is drawn again only when its item changes.
  const [lines, setLines] = useState<TurnLines | null>(null);
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const observer = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting === true) void model.linesOf(turnId).then(setLines);
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [model, turnId]);
  return <span ref={place}>{lines === null ? '' : ` · ${formatLines(lines)}`}</span>;
}

/** `3 files +12 −4`. */
function formatLines({ files, added, removed }: TurnLines): string {
  if (files === 0) return 'no changed files';
  const count = formatCount(files, 'file');
  return added === null || removed === null || added + removed === 0
    ? count
    : `${count} +${formatNumber(added)} −${formatNumber(removed)}`;
}

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
