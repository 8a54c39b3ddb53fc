/** What the bytes of an image say about themselves. */
export interface ImageFacts {
  readonly mediaType: 'image/png' | 'image/jpeg' | 'image/gif' | 'image/webp';
  readonly width: number;
  readonly height: number;
}

/** Larger pictures are files: a small one on disk may fill the memory of whoever draws it. */
const MOST_PIXELS = 64 * 10 ** 6;
const MOST_SIDE = 16_384;

/**
 * The type of a picture by its first bytes, whatever its name says. Null for everything else: other formats, pictures that are too
 * large to draw, damaged ones, and SVG, which is a document that can hold scripts and links.
 */
export function imageFacts(bytes: Uint8Array): ImageFacts | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let facts: ImageFacts | null;
  try {
    facts = pngFacts(view) ?? gifFacts(view) ?? webpFacts(view) ?? jpegFacts(view);
  } catch (error) {
    // It ends within its own header.
    if (error instanceof RangeError) return null;
    throw error;
  }
  if (facts === null) return null;
  const { width, height } = facts;
  const fits = width > 0 && height > 0 && width <= MOST_SIDE && height <= MOST_SIDE;
  return fits && width * height <= MOST_PIXELS ? facts : null;
}

function pngFacts(view: DataView): ImageFacts | null {
  if (!hasText(view, 0, '\x89PNG\r\n\x1a\n') || !hasText(view, 12, 'IHDR')) return null;
  return { mediaType: 'image/png', width: view.getUint32(16), height: view.getUint32(20) };
}

function gifFacts(view: DataView): ImageFacts | null {
  if (!hasText(view, 0, 'GIF87a') && !hasText(view, 0, 'GIF89a')) return null;
  return { mediaType: 'image/gif', width: view.getUint16(6, true), height: view.getUint16(8, true) };
}

function webpFacts(view: DataView): ImageFacts | null {
  if (!hasText(view, 0, 'RIFF') || !hasText(view, 8, 'WEBP')) return null;
  const mediaType = 'image/webp';
  if (hasText(view, 12, 'VP8X')) {
    const uint24 = (at: number): number => view.getUint16(at, true) + view.getUint8(at + 2) * 0x1_00_00;
    return { mediaType, width: uint24(24) + 1, height: uint24(27) + 1 };
  }
  if (hasText(view, 12, 'VP8L')) {
    const bits = view.getUint32(21, true);
    return { mediaType, width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
  }
  if (!hasText(view, 12, 'VP8 ')) return null;
  return {
    mediaType,
    width: view.getUint16(26, true) & 0x3fff,
    height: view.getUint16(28, true) & 0x3fff,
  };
}

/** Its size is in the first frame header, behind segments of any length. */
function jpegFacts(view: DataView): ImageFacts | null {
  if (view.byteLength < 4 || view.getUint16(0) !== 0xffd8 || view.getUint8(2) !== 0xff) return null;
  for (let at = 2; ;) {
    if (view.getUint8(at) !== 0xff) return null;
    const marker = view.getUint8(at + 1);
    // Bytes that fill up.
    if (marker === 0xff) {
      at += 1;
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
    if (isFrame)
      return { mediaType: 'image/jpeg', height: view.getUint16(at + 5), width: view.getUint16(at + 7) };
    // The end, or the picture without a frame header before it.
    if (marker === 0xd9 || marker === 0xda) return null;
    const length = view.getUint16(at + 2);
    if (length < 2) return null;
    at += 2 + length;
  }
}

function hasText(view: DataView, at: number, text: string): boolean {
  if (view.byteLength < at + text.length) return false;
  for (let nth = 0; nth < text.length; nth += 1)
    if (view.getUint8(at + nth) !== text.charCodeAt(nth)) return false;
  return true;
}
