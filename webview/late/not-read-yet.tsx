import { plain } from '../format.ts';

interface Props {
  /** Why it could not be read; null while it is being read. */
  readonly why: string | null;
  readonly again: () => void;
}

/** What stands in the place of a part of the page until its data is there. */
export function NotReadYet({ why, again }: Props) {
  return (
    <div class="timeline loading" role="status">
      {why === null ? (
        'Loading…'
      ) : (
        <p>
          {plain(why)}{' '}
          <button class="link" onClick={again}>
            Try Again
          </button>
        </p>
      )}
    </div>
  );
}
