// The home page: runs in a webview of VS Code.
import './without-generated-code.ts';
import { render } from 'preact';
import { HomeModel } from './home/home-model.ts';
import { Home } from './home/home.tsx';

const root = document.getElementById('page');
if (root !== null) {
  const model = new HomeModel();
  window.addEventListener('error', ({ error }: ErrorEvent) => model.fail(error));
  window.addEventListener('unhandledrejection', ({ reason }) => model.fail(reason));
  render(<Home model={model} />, root);
}
