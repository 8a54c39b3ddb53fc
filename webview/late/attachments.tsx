import { useEffect, useRef, useState } from 'preact/hooks';
import { attachmentName } from '../../protocol/attachment-names.ts';
import type { Attachment } from '../../protocol/attachments.ts';
import { formatBytes, plain } from '../format.ts';
import { readInParts } from '../file-parts.ts';
import type { AttachmentsProps } from '../late.ts';
import { Icon } from '../view/icon.tsx';
import type { LateModel } from './late-model.ts';

/** The longer side of a picture as it is drawn, in CSS pixels. */
const SIDE = { small: 96, large: 800 } as const;
/** Pictures are read one after the other: each may have 10 MiB. */
let reading: Promise<unknown> = Promise.resolve();

/** Uploads a file of the person, a part at a time. Fails with a sentence. */
export async function attach(model: LateModel, file: File): Promise<Attachment> {
  const found = await readInParts(file, async (part) => {
    const { content, kind } = await model.request('upload', part);
    return content === null || kind === null ? null : { content, kind };
  });
  return { ...found, name: attachmentName(file.name) };
}

/** The files of a prompt: pictures as small drawings, everything else by its name. */
export function Attachments({
  model,
  attachments,
  onRemove,
}: AttachmentsProps & { readonly model: LateModel }) {
  return (
    <ul class="attachments" aria-label="Attachments">
      {attachments.map((one, index) => {
        const name = plain(one.kind === 'link' ? one.path : one.name);
        return (
          <li key={`${index}-${name}`} class={one.kind}>
            {one.kind === 'image' ? (
              <Picture model={model} sha256={one.content.sha256} name={name} />
            ) : (
              <FileName model={model} one={one} name={name} />
            )}
            {onRemove !== undefined && (
              <button class="icon" title="Remove" aria-label={`Remove ${name}`} onClick={() => onRemove(one)}>
                <Icon name="close" />
              </button>
            )}
          </li>
        );
      })}
    </ul>
  );
}

function FileName({
  model,
  one,
  name,
}: {
  model: LateModel;
  one: Exclude<Attachment, { kind: 'image' }>;
  name: string;
}) {
  const [text, setText] = useState<string | null>(null);
  if (one.kind === 'link') {
    return (
      <button class="link" onClick={() => void model.page.ask('openFile', { path: one.path, line: null })}>
        <Icon name="link" /> {name}
      </button>
    );
  }
  const { sha256, bytes, mediaType } = one.content;
  const label = (
    <>
      <Icon name="file" /> {name} <span class="quiet">{formatBytes(bytes)}</span>
    </>
  );
  if (!mediaType.startsWith('text/')) return <span class="name">{label}</span>;
  const toggle = (): void => {
    if (text !== null) setText(null);
    else
      model.page.request('content', { sha256 }).then(
        (found) => setText(found.isCut ? `${found.text}\n…` : found.text),
        (error: unknown) => model.page.fail(error),
      );
  };
  return (
    <>
      <button class="link" aria-expanded={text !== null} onClick={toggle}>
        {label}
      </button>
      {text !== null && (
        <pre tabIndex={0} class="whole">
          {plain(text)}
        </pre>
      )}
    </>
  );
}

/** A picture, drawn once it is seen. A canvas is inert: it holds pixels, and nothing of the file. */
function Picture({
  model,
  sha256,
  name,
}: {
  readonly model: LateModel;
  readonly sha256: string;
  readonly name: string;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [isLarge, setLarge] = useState(false);
  const [isSeen, setSeen] = useState(false);
  const [why, setWhy] = useState<string | null>(null);
  useEffect(() => {
    const element = canvas.current;
    if (element === null || isSeen) return undefined;
    const observer = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) setSeen(true);
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [isSeen]);
  useEffect(() => {
    if (!isSeen) return undefined;
    let isCurrent = true;
    const drawn = reading.then(async () => {
      if (isCurrent && canvas.current !== null) await draw(model, sha256, canvas.current, isLarge);
    });
    drawn.then(
      () => isCurrent && setWhy(null),
      (error: unknown) => isCurrent && setWhy((error as Error).message),
    );
    reading = drawn.catch(() => undefined);
    return () => {
      isCurrent = false;
    };
  }, [model, sha256, isSeen, isLarge]);
  return (
    <button
      class="picture"
      title={why ?? name}
      aria-label={`${name}${why === null ? '' : `: ${why}`}`}
      aria-expanded={isLarge}
      onClick={() => setLarge(!isLarge)}
    >
      <canvas ref={canvas} width={SIDE.small} height={SIDE.small} hidden={why !== null} aria-hidden="true" />
      {why !== null && (
        <>
          <Icon name="file-media" /> {name}
        </>
      )}
    </button>
  );
}

async function draw(
  model: LateModel,
  sha256: string,
  canvas: HTMLCanvasElement,
  isLarge: boolean,
): Promise<void> {
  const picture = await model.request('picture', { sha256 });
  const bytes = Uint8Array.from(atob(picture.bytes), (character) => character.charCodeAt(0));
  const side = isLarge ? SIDE.large : SIDE.small;
  const scale = Math.min(1, side / Math.max(picture.width, picture.height));
  const [width, height] = [picture.width, picture.height].map((one) => Math.max(1, Math.round(one * scale)));
  // Sharp on a dense screen, and no larger than the picture.
  const density = Math.min(window.devicePixelRatio, 2, 1 / scale);
  const bitmap = await createImageBitmap(new Blob([bytes], { type: picture.mediaType }), {
    resizeWidth: Math.max(1, Math.round((width ?? 1) * density)),
    resizeHeight: Math.max(1, Math.round((height ?? 1) * density)),
    resizeQuality: 'medium',
  });
  canvas.width = bitmap.width;
  canvas.height = bitmap.height;
  canvas.style.setProperty('--width', `${width ?? 1}px`);
  canvas.getContext('2d')?.drawImage(bitmap, 0, 0);
  bitmap.close();
}
