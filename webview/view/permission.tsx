import { useState } from 'preact/hooks';
import { placeOfClient } from '../../protocol/client-names.ts';
import { plain } from '../format.ts';
import type { PageModel } from '../page-model.ts';
import type { Row } from '../timeline.ts';
import { Icon } from './icon.tsx';

interface Props {
  readonly model: PageModel;
  readonly row: Extract<Row, { kind: 'permission' }>;
}

/** A question of the agent, answered in place. */
export function Permission({ model, row }: Props) {
  const { permissionId, title, options, answer, by } = row.item;
  const [isSending, setSending] = useState(false);
  /** Why the answer that was given here does not count. */
  const [tooLate, setTooLate] = useState<string | null>(null);
  if (by !== null) {
    const isAllowed = answer?.kind.startsWith('allow') === true;
    const where = answeredBy(by);
    const what = answer === null ? 'Not answered' : isAllowed ? 'Allowed' : 'Rejected';
    return (
      <p class="mark">
        <Icon name={isAllowed ? 'pass' : 'circle-slash'} /> {what}: {plain(title)}
        {where !== '' && <span> · {where}</span>}
        {tooLate !== null && <span role="status"> · Your answer came later and does not count.</span>}
      </p>
    );
  }
  if (tooLate !== null) {
    return (
      <p class="mark" role="status">
        <Icon name="info" /> No answer is needed any more to “{plain(title)}”: {plain(tooLate)}.
      </p>
    );
  }
  const send = async (option: string): Promise<void> => {
    setSending(true);
    try {
      // An answer that counts comes back with the conversation; until then nothing can be answered again.
      setTooLate((await model.request('answer', { permissionId, answer: option })).tooLate);
    } catch (error) {
      model.fail(error);
      setSending(false);
    }
  };
  return (
    <section class="permission" aria-label={`The agent asks: ${plain(title)}`}>
      <h3>
        <Icon name="question" /> The agent asks for permission
      </h3>
      <p class="what">{plain(title)}</p>
      <div class="actions">
        {options.map(({ id, name, kind }, index) => (
          <button
            key={id}
            class={index === 0 && kind.startsWith('allow') ? 'primary' : 'secondary'}
            disabled={isSending}
            onClick={() => void send(id)}
          >
            {plain(name)}
          </button>
        ))}
      </div>
    </section>
  );
}

function answeredBy({ kind, name }: { readonly kind: string; readonly name: string | null }): string {
  switch (kind) {
    case 'client':
      return name === null ? '' : placeOfClient(plain(name));
    case 'rule':
      return 'by a rule';
    case 'profile':
      return 'as the profile says';
    default:
      return 'when the turn ended';
  }
}
