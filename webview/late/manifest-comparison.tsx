import { useEffect, useState } from 'preact/hooks';
import { formatTime, plain } from '../format.ts';
import type { KeptManifest, SessionManifest } from '../late-messages.ts';
import type { LateModel } from './late-model.ts';
import { differencesOf } from './manifest-difference.ts';

interface Props {
  readonly model: LateModel;
  /** The manifest that is shown. */
  readonly now: SessionManifest;
}

/** What differs from an earlier manifest that is kept, by default the newest one. */
export function ManifestComparison({ model, now }: Props) {
  const [kept, setKept] = useState<readonly KeptManifest[]>([]);
  const [chosen, setChosen] = useState<string | null>(null);
  const [earlier, setEarlier] = useState<SessionManifest | null>(null);
  const [why, setWhy] = useState<string | null>(null);
  const fail = (error: unknown): void => setWhy(error instanceof Error ? error.message : String(error));
  useEffect(() => {
    model.request('manifests', {}).then(({ manifests }) => {
      setKept(manifests);
      setChosen((one) => one ?? manifests[0]?.id ?? null);
    }, fail);
  }, [model, now]);
  useEffect(() => {
    setEarlier(null);
    if (chosen === null) return undefined;
    let isOver = false;
    model.request('manifest', { id: chosen }).then((manifest) => {
      if (!isOver) setEarlier(manifest);
    }, fail);
    return () => {
      isOver = true;
    };
  }, [model, chosen]);
  if (kept.length === 0 && why === null) return null;
  return (
    <section class="compare-manifests" aria-label="Differences from an earlier manifest">
      <h2>What differs</h2>
      <label>
        From the manifest of{' '}
        <select value={chosen ?? ''} onChange={({ currentTarget }) => setChosen(currentTarget.value)}>
          {kept.map(({ id, madeAt, reason }, at) => (
            <option key={id} value={id}>
              {`${formatTime(madeAt)} · ${plain(reason)}${at === 0 ? ' (the newest that is kept)' : ''}`}
            </option>
          ))}
        </select>
      </label>
      {why !== null && <p role="status">{plain(why)}</p>}
      {earlier !== null && <Differences earlier={earlier} now={now} />}
    </section>
  );
}

function Differences({ earlier, now }: { readonly earlier: SessionManifest; readonly now: SessionManifest }) {
  const rows = differencesOf(earlier, now);
  const invalid = earlier.signature.why;
  return (
    <>
      {invalid !== null && (
        <p class="signature invalid">The signature of the earlier one is not valid: {plain(invalid)}</p>
      )}
      {rows.length === 0 ? (
        <p class="quiet">They say the same.</p>
      ) : (
        <table>
          <caption>What the two manifests say differently</caption>
          <thead>
            <tr>
              <th scope="col">what</th>
              <th scope="col">then</th>
              <th scope="col">now</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ what, before, after }) => (
              <tr key={what}>
                <td>{plain(what)}</td>
                <td>{before === null ? '–' : plain(before)}</td>
                <td>{after === null ? '–' : plain(after)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}
