/** How the images that Holdfast makes itself get onto an engine: with the extension alone, and in a checkout. */
export const HOW_TO_GET_HOLDFAST_IMAGES =
  'run `Agent: Build Images` in VS Code, or `npm run images` in a checkout of Holdfast';

/** Whether an image is one of them, which no registry has under this name. */
export function isHoldfastImage(reference: string): boolean {
  return reference.startsWith('holdfast/');
}
