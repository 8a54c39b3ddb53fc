import { useEffect, useState } from 'preact/hooks';
import { loadLateViews } from '../late.ts';
import type { AttachmentsProps, LateViews } from '../late.ts';
import type { PageModel } from '../page-model.ts';

/** The files of a prompt. What draws them is loaded when the first one is there. */
export function Attachments({ model, ...props }: AttachmentsProps & { readonly model: PageModel }) {
  const [views, setViews] = useState<LateViews | null>(null);
  useEffect(() => {
    loadLateViews(model).then(setViews, (error: unknown) => model.fail(error));
  }, [model]);
  return views === null ? (
    <p class="quiet">{props.attachments.length} attached</p>
  ) : (
    <views.attachments {...props} />
  );
}
