export interface PageDocument {
  /** As `Webview.cspSource`: where the files of the page come from. */
  readonly source: string;
  readonly script: string;
  readonly style: string;
  /** Random for each document; base64. */
  readonly nonce: string;
  readonly title: string;
  /** The id of the session that the page is about; undefined for a page that is about none. */
  readonly session?: string;
}

/**
 * The document of a page. Its policy allows the bundle and nothing else: no other script, no request, no image,
 * no frame, whatever an agent wrote.
 */
export function pageDocument({ source, script, style, nonce, title, session }: PageDocument): string {
  const policy = [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    `style-src ${source}`,
    `font-src ${source}`,
    "form-action 'none'",
    "base-uri 'none'",
  ].join('; ');
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="${style}">
<title>${title}</title>
</head>
<body>
<div id="page"${session === undefined ? '' : ` data-session="${session}"`}></div>
<script nonce="${nonce}" src="${script}"></script>
</body>
</html>`;
}
