import { randomBytes } from 'node:crypto';
import { Uri } from 'vscode';
import type { WebviewPanel } from 'vscode';
import { pageDocument } from './page-document.ts';

/** The icon of a panel's tab: ours, with a dot while a session runs or waits for a person. */
export function showIcon(
  panel: WebviewPanel,
  extension: Uri,
  name: 'icon' | 'icon-running' | 'icon-waiting',
): void {
  const file = (theme: string): Uri => Uri.joinPath(extension, `extension/media/${name}.${theme}.svg`);
  panel.iconPath = { dark: file('dark'), light: file('light') };
}

/** Gives a panel the document of a page. `extension`: its folder; `bundle`: the page's script and style in `dist/webview`. */
export function fillPanel(
  panel: WebviewPanel,
  extension: Uri,
  page: { readonly bundle: string; readonly title: string; readonly session?: string },
): void {
  const { webview } = panel;
  // The only folder that a page may read.
  const folder = Uri.joinPath(extension, 'dist', 'webview');
  webview.options = { enableScripts: true, localResourceRoots: [folder] };
  showIcon(panel, extension, 'icon');
  const { bundle, ...named } = page;
  const file = (name: string): string => webview.asWebviewUri(Uri.joinPath(folder, name)).toString();
  webview.html = pageDocument({
    source: webview.cspSource,
    script: file(`${bundle}.js`),
    style: file(`${bundle}.css`),
    nonce: randomBytes(16).toString('base64'),
    ...named,
  });
}
