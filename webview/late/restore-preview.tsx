import { useEffect, useRef, useState } from 'preact/hooks';
import { formatCount } from '../format.ts';
import type { PageSnapshot } from '../late-messages.ts';
import { ChangeList } from './change-list.tsx';
import type { LateModel } from './late-model.ts';

interface Props {
  readonly model: LateModel;
  readonly snapshot: PageSnapshot;
  readonly onClose: () => void;
}

/** What a restore of the snapshot changes in the workspace, and the restore itself. */
export function RestorePreview({ model, snapshot, onClose }: Props) {
  const { id, missing } = snapshot;
  const [isRestoring, setRestoring] = useState(false);
  const [seen, setSeen] = useState<string | null>(null);
  const box = useRef<HTMLElement>(null);
  useEffect(() => box.current?.focus(), []);
  const restore = async (): Promise<void> => {
    if (seen === null) return;
    setRestoring(true);
    const answer = await model.ask('restoreSnapshot', { snapshot: id, seen });
    setRestoring(false);
    if (answer?.restored === true) onClose();
  };
  return (
    <section
      ref={box}
      class="restore-preview"
      tabIndex={-1}
      aria-label="Preview of the restore"
      onKeyDown={({ key }) => {
        if (key === 'Escape' && !isRestoring) onClose();
      }}
    >
      <p>
        <strong>A restore changes these files in the workspace.</strong> A snapshot of the files of now is
        created first.
        {missing > 0 &&
          ` This snapshot lacks ${formatCount(missing, 'file')} that could not be read: they stay as they are.`}
      </p>
      <ChangeList model={model} from="now" to={id} snapshot={id} onShown={setSeen} />
      <div class="actions">
        <button class="primary" disabled={isRestoring || seen === null} onClick={() => void restore()}>
          {isRestoring ? 'Restoring…' : 'Restore'}
        </button>
        <button class="secondary" disabled={isRestoring} onClick={onClose}>
          Cancel
        </button>
      </div>
    </section>
  );
}
