/** How a person gets the images that Holdfast builds: with the extension alone, and in a checkout. */
export const HOW_TO_GET_HOLDFAST_IMAGES =
  'run `Agent: Build Images` in VS Code, or `npm run images` in a checkout of Holdfast';

/** Whether Holdfast builds this image itself; no registry has an image of this name. */
export function isHoldfastImage(reference: string): boolean {
  return reference.startsWith('holdfast/');
}
