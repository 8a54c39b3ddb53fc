import type { ComponentType } from 'preact';
import type { Attachment } from '../protocol/attachments.ts';
import type { PageModel } from './page-model.ts';

/** The views that the session page loads when one of them is first needed, and what each is given. They are in `late/`. */
export interface LateViews {
  readonly snapshots: ComponentType;
  readonly record: ComponentType;
  readonly find: ComponentType;
  readonly attachments: ComponentType<AttachmentsProps>;
  /** Uploads a file of the person. Fails with a sentence. */
  readonly attach: (file: File) => Promise<Attachment>;
}

export interface AttachmentsProps {
  readonly attachments: readonly Attachment[];
  /** Undefined: they cannot be removed. */
  readonly onRemove?: (attachment: Attachment) => void;
}

const FILE = 'session-page-late.js';

/** The script that runs now: the page's first. Its nonce is the one that the policy of the document knows. */
const own = document.currentScript as HTMLScriptElement | null;
let provided: ((model: PageModel) => LateViews) | null = null;
let views: Promise<LateViews> | null = null;

/** Called by the late script, once. */
export function provideLateViews(provide: (model: PageModel) => LateViews): void {
  provided = provide;
}

/** Loads the late script once; a load that failed is tried again by the next call. */
export function loadLateViews(model: PageModel): Promise<LateViews> {
  views ??= loadScript().then(() => {
    if (provided === null) throw new Error('The rest of the page is damaged. Install the extension again.');
    return provided(model);
  });
  views.catch(() => (views = null));
  return views;
}

function loadScript(): Promise<undefined> {
  const script = document.createElement('script');
  script.nonce = own?.nonce ?? '';
  script.src = new URL(FILE, own?.src).href;
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  script.onload = () => resolve(undefined);
  script.onerror = () => {
    script.remove();
    reject(new Error('The rest of the page could not be loaded.'));
  };
  document.head.append(script);
  return promise;
}
