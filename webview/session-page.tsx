// The session page: runs in a webview of VS Code.
import './without-generated-code.ts';
import { render } from 'preact';
import { PageModel } from './page-model.ts';
import { App } from './view/app.tsx';

const root = document.getElementById('page');
if (root !== null) {
  const model = new PageModel(root.dataset['session'] ?? '');
  window.addEventListener('error', ({ error }: ErrorEvent) => model.fail(error));
  window.addEventListener('unhandledrejection', ({ reason }) => model.fail(reason));
  render(<App model={model} />, root);
}
