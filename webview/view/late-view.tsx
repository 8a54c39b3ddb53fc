import { useEffect, useState } from 'preact/hooks';
import { loadLateViews } from '../late.ts';
import type { LateViews } from '../late.ts';
import type { PageModel } from '../page-model.ts';

/** Views that fill the page. */
type LateTab = Exclude<keyof LateViews, 'attachments' | 'attach'>;

/** A part of the page that is loaded when it is first shown. */
export function LateView({ model, name }: { readonly model: PageModel; readonly name: LateTab }) {
  const [views, setViews] = useState<LateViews | null>(null);
  const [why, setWhy] = useState<string | null>(null);
  const [tries, setTries] = useState(0);
  useEffect(() => {
    loadLateViews(model).then(setViews, (error: unknown) => setWhy((error as Error).message));
  }, [model, tries]);
  const View = views?.[name];
  if (View !== undefined) return <View />;
  return (
    <div class="timeline loading" role="status">
      {why === null ? (
        'Loading…'
      ) : (
        <p>
          {why}{' '}
          <button
            class="link"
            onClick={() => {
              setWhy(null);
              setTries(tries + 1);
            }}
          >
            Try Again
          </button>
        </p>
      )}
    </div>
  );
}
