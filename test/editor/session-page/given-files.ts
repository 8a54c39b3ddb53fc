import type { Page } from 'playwright-core';

/** Pastes or drops a file, as the browser reports it. */
export const giveFile = (page: Page, how: 'paste' | 'drop', name: string, bytes: Buffer) =>
  page.evaluate(`{
    const data = new DataTransfer();
    const content = Uint8Array.from(atob('${bytes.toString('base64')}'), (one) => one.charCodeAt(0));
    data.items.add(new File([content], ${JSON.stringify(name)}));
    const options = { bubbles: true, cancelable: true };
    document.querySelector('textarea').dispatchEvent(${
      how === 'paste'
        ? "new ClipboardEvent('paste', { ...options, clipboardData: data })"
        : "new DragEvent('drop', { ...options, dataTransfer: data })"
    });
  }`);
