import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Session } from '../../protocol/entities.ts';
import { ancestorOf, beginningOf } from '../../protocol/origins.ts';
import { formatBytes, formatCount, formatNumber, formatTime, plain } from '../format.ts';
import type { SessionRecord } from '../late-messages.ts';
import { Icon } from '../view/icon.tsx';
import type { LateModel } from './late-model.ts';
import { ManifestComparison } from './manifest-comparison.tsx';
import { NotReadYet } from './not-read-yet.tsx';

const ORIGINS: Readonly<Record<SessionRecord['rules'][number]['from'], string>> = {
  file: 'holdfast.yaml',
  once: 'allowed once',
  session: 'this session',
  profile: 'its profile',
};

/** What the session may do and why, and the signed record of what it did. Read-only. */
export function Record({ model }: { readonly model: LateModel }) {
  const [record, setRecord] = useState<SessionRecord | null>(null);
  const [why, setWhy] = useState<string | null>(null);
  const [reads, setReads] = useState(0);
  const { lastSeq = 0 } = model.page.state.session ?? {};
  const [seq, setSeq] = useState(lastSeq);
  useEffect(() => {
    setSeq(model.page.state.session?.lastSeq ?? 0);
    setWhy(null);
    model.request('record', {}).then(setRecord, (error: unknown) => {
      setWhy(error instanceof Error ? error.message : String(error));
    });
  }, [model, reads]);
  const again = (): void => setReads((count) => count + 1);

  if (record === null) return <NotReadYet why={why} again={again} />;
  return (
    <div class="timeline" tabIndex={0} role="region" aria-label="Manifest and policy">
      <div class="column record">
        <h2>What it may do</h2>
        <Rules rules={record.rules} />
        <Credentials credentials={record.credentials} />
        <h2>What it did</h2>
        <Signature record={record} />
        {(lastSeq > seq || why !== null) && (
          <p class="quiet" role="status">
            {why === null ? 'The session has gone on since.' : plain(why)}{' '}
            <button class="link" onClick={again}>
              Make a New Manifest
            </button>
          </p>
        )}
        <dl>
          {record.facts.map(({ label, value }) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd>{plain(value)}</dd>
            </div>
          ))}
        </dl>
        <Hosts hosts={record.hosts} />
        <ManifestComparison model={model} now={record} />
        <p class="actions">
          <button class="secondary" onClick={() => void model.ask('copyManifest', {})}>
            Copy Signed Manifest
          </button>
          <button
            class="secondary"
            onClick={() => void model.page.ask('command', { command: 'saveManifest' })}
          >
            Save Manifest…
          </button>
        </p>
        <h2>Where it comes from</h2>
        <Beginning session={model.page.state.session} />
        <h2>What is kept</h2>
        <Kept model={model} snapshots={record.snapshots} />
      </div>
    </div>
  );
}

function Signature({ record: { signature, madeAt } }: { readonly record: SessionRecord }) {
  const { keyId, why } = signature;
  return (
    <p class={`signature ${why === null ? 'valid' : 'invalid'}`}>
      <Icon name={why === null ? 'verified-filled' : 'error'} />{' '}
      {why === null
        ? `Signed with the key of this home, ${keyId.slice(0, 16)}${madeAt === null ? '' : `, ${formatTime(madeAt)}`}`
        : `The signature is not valid: ${plain(why)}`}
    </p>
  );
}

function Rules({ rules }: { readonly rules: SessionRecord['rules'] }) {
  if (rules.length === 0) return <p>It reaches no host: nothing is allowed.</p>;
  return (
    <Table label="Hosts that it may reach" head={['host', 'allowed', 'because of']}>
      {rules.map(({ host, effect, from, isUnread }, index) => (
        <tr key={index}>
          <td>{plain(host)}</td>
          <td>{effect === 'allow' ? `yes${isUnread ? ', unread' : ''}` : 'no'}</td>
          <td>{ORIGINS[from]}</td>
        </tr>
      ))}
    </Table>
  );
}

function Credentials({ credentials }: { readonly credentials: SessionRecord['credentials'] }) {
  if (credentials.length === 0) return <p class="quiet">Its requests get no credentials.</p>;
  return (
    <Table label="Credentials, which stay outside of the sandbox" head={['credential', 'for requests to']}>
      {credentials.map(({ name, host }, index) => (
        <tr key={index}>
          <td>{plain(name)}</td>
          <td>{plain(host)}</td>
        </tr>
      ))}
    </Table>
  );
}

/** Who created the session, from what, and of which lineage it is. */
function Beginning({ session }: { readonly session: Session | null }) {
  if (session === null) return null;
  const { author, createdAt } = session;
  const facts = [
    ['Created', `${formatTime(createdAt)}${author === null ? '' : ` by ${plain(author)}`}`],
    ['Began', beginningOf(session) ?? 'by itself'],
    ['Lineage', ancestorOf(session) ?? 'its own'],
  ];
  return (
    <dl>
      {facts.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

interface KeptProps {
  readonly model: LateModel;
  readonly snapshots: SessionRecord['snapshots'];
}

/** What there is of the session, how large it is, and when it goes. */
function Kept({ model, snapshots }: KeptProps) {
  const { session } = model.page.state;
  if (session === null) return null;
  const { persistent, expiresAt, workspaceBytes, lastSeq } = session;
  const expiry = expiresAt === null ? '' : `, ${formatTime(expiresAt)}`;
  const rows = [
    [
      'workspace',
      workspaceBytes === null ? 'not measured' : formatBytes(workspaceBytes),
      persistent ? 'the session is deleted; then a last snapshot for a week' : `the session expires${expiry}`,
    ],
    [
      formatCount(snapshots.snapshots, 'snapshot'),
      formatBytes(snapshots.bytes),
      'thinned out with age; pinned ones until the session is deleted',
    ],
    ['history', formatCount(lastSeq, 'event'), 'the session is deleted; then a week'],
  ];
  return (
    <Table label="Layers of the session" head={['what', 'size', 'kept until']}>
      {rows.map(([what, size, until]) => (
        <tr key={what}>
          <td>{what}</td>
          <td>{size}</td>
          <td>{until}</td>
        </tr>
      ))}
    </Table>
  );
}

function Hosts({ hosts }: { readonly hosts: SessionRecord['hosts'] }) {
  if (hosts.length === 0) return null;
  return (
    <Table label="Connections" head={['host', 'allowed', 'denied', 'failed']}>
      {hosts.map(({ host, port, allowed, denied, failed }, index) => (
        <tr key={index}>
          <td>{`${plain(host)}:${port}`}</td>
          <td>{formatNumber(allowed)}</td>
          <td>{formatNumber(denied)}</td>
          <td>{formatNumber(failed)}</td>
        </tr>
      ))}
    </Table>
  );
}

interface TableProps {
  readonly label: string;
  readonly head: readonly string[];
  readonly children: ComponentChildren;
}

function Table({ label, head, children }: TableProps) {
  return (
    <table>
      <caption>{label}</caption>
      <thead>
        <tr>
          {head.map((name) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}
