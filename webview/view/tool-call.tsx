import { structuredPatch } from 'diff';
import { useEffect, useState } from 'preact/hooks';
import { plain } from '../format.ts';
import type { PageModel } from '../page-model.ts';
import type { Row } from '../timeline.ts';
import { toolParts } from '../tool-details.ts';
import type { ToolPart } from '../tool-details.ts';
import { Code } from './code.tsx';
import { Icon } from './icon.tsx';

const ICONS: Readonly<Record<string, string>> = {
  read: 'file',
  edit: 'edit',
  delete: 'trash',
  move: 'arrow-swap',
  search: 'search',
  execute: 'terminal',
  think: 'lightbulb',
  fetch: 'globe',
  other: 'tools',
};
const STATUS = {
  pending: { icon: 'circle-outline', text: 'waiting' },
  in_progress: { icon: 'loading', text: 'running' },
  completed: { icon: 'check', text: 'done' },
  failed: { icon: 'error', text: 'failed' },
  cancelled: { icon: 'circle-slash', text: 'cancelled' },
} as const;
const MAX_LINES = 400;
const DIFF_LIMITS = { context: 3, maxEditLength: 2000, timeout: 200 } as const;

interface Props {
  readonly model: PageModel;
  readonly row: Extract<Row, { kind: 'tool' }>;
}

/** A tool call: one line, which unfolds to what went in and came out. */
export function ToolCall({ model, row }: Props) {
  const { kind, status, title, locations, contents } = row.item;
  const [isOpen, setOpen] = useState(false);
  const [location] = locations;
  const state = STATUS[status];
  return (
    <section class={`tool ${status}`}>
      <div class="head">
        <button class="unfold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <Icon name={ICONS[kind] ?? 'tools'} />
          <span class="title">{plain(title)}</span>
        </button>
        {location !== undefined && (
          <button
            class="link path"
            title={plain(location.path)}
            onClick={() => void model.ask('openFile', location)}
          >
            {fileName(location.path)}
            {location.line === null ? '' : `:${location.line}`}
          </button>
        )}
        <span class="state" title={state.text}>
          <Icon name={state.icon} spin={status === 'in_progress'} />
          <span class="hidden">{state.text}</span>
        </span>
      </div>
      {isOpen && <Details model={model} sha256={contents[0]?.sha256} seq={row.item.seq} />}
    </section>
  );
}

function Details({ model, sha256, seq }: { model: PageModel; sha256: string | undefined; seq: number }) {
  const [parts, setParts] = useState<readonly ToolPart[] | null>(null);
  useEffect(() => {
    if (sha256 === undefined) return;
    model.request('content', { sha256 }).then(
      ({ text }) => setParts(toolParts(text)),
      (error: unknown) => model.fail(error),
    );
  }, [model, sha256, seq]);
  if (sha256 === undefined) return <p class="quiet">The agent gave no details.</p>;
  if (parts === null) return <p class="quiet">Loading…</p>;
  return (
    <div class="details">
      {parts.map((part, index) =>
        part.kind === 'diff' ? (
          <Diff key={index} model={model} part={part} />
        ) : (
          <div key={index}>
            <span class="label">{part.label}</span>
            <Code
              model={model}
              text={limited(plain(part.text))}
              label={part.label}
              language={part.language}
            />
          </div>
        ),
      )}
    </div>
  );
}

function Diff({ model, part }: { model: PageModel; part: Extract<ToolPart, { kind: 'diff' }> }) {
  const patch = structuredPatch('', '', part.before, part.after, '', '', DIFF_LIMITS);
  const lines = patch?.hunks.flatMap((hunk) => ['@', ...hunk.lines]).slice(1, MAX_LINES) ?? [];
  return (
    <div class="diff">
      <button class="link path" onClick={() => void model.ask('openFile', { path: part.path, line: null })}>
        {plain(part.path)}
      </button>
      <pre tabIndex={0} aria-label={`Changes of ${plain(part.path)}`}>
        {patch === undefined
          ? limited(plain(part.after))
          : lines.map((line, index) => (
              <span key={index} class={lineClass(line)}>
                {line === '@' ? '⋯' : plain(line)}
                {'\n'}
              </span>
            ))}
      </pre>
    </div>
  );
}

function lineClass(line: string): string {
  if (line.startsWith('+')) return 'added';
  if (line.startsWith('-')) return 'removed';
  return line === '@' ? 'gap' : '';
}

function limited(text: string): string {
  const lines = text.split('\n', MAX_LINES + 1);
  return lines.length > MAX_LINES ? `${lines.slice(0, MAX_LINES).join('\n')}\n…` : text;
}

function fileName(path: string): string {
  return plain(path.slice(path.lastIndexOf('/') + 1));
}
