import { useEffect, useState } from 'preact/hooks';
import type { PageModel } from '../page-model.ts';
import { Icon } from './icon.tsx';

const SHOWN_MS = 1500;

interface Props {
  readonly model: PageModel;
  readonly text: string;
  /** What is copied. */
  readonly label: string;
}

export function CopyButton({ model, text, label }: Props) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return undefined;
    const timer = setTimeout(() => setCopied(false), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const name = isCopied ? 'Copied' : `Copy: ${label}`;
  return (
    <button
      class="icon copy"
      title={name}
      aria-label={name}
      onClick={() => void model.copy(text).then(setCopied)}
    >
      <Icon name={isCopied ? 'check' : 'copy'} />
    </button>
  );
}
