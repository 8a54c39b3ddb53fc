// What the session page loads when it is first needed. It shares the modules that `esbuild.mjs` lists with the page's first script.
import { FindBar } from './late/find-bar.tsx';
import { attach, Attachments } from './late/attachments.tsx';
import { LateModel } from './late/late-model.ts';
import { Record } from './late/record.tsx';
import { Snapshots } from './late/snapshots.tsx';
import { provideLateViews } from './late.ts';

provideLateViews((page) => {
  const model = new LateModel(page);
  return {
    snapshots: () => <Snapshots model={model} />,
    record: () => <Record model={model} />,
    find: () => <FindBar model={model} />,
    attachments: (props) => <Attachments model={model} {...props} />,
    attach: (file) => attach(model, file),
  };
});
