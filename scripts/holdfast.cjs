#!/usr/bin/env node
'use strict';
// The command line as it runs from a checkout: loads the built program into this process.
const { existsSync } = require('node:fs');
const { enableCompileCache } = require('node:module');
const { join } = require('node:path');

const program = join(__dirname, '../dist/holdfast.cjs');
if (Number(process.versions.node.split('.')[0]) < 24) {
  process.stderr.write(
    `error usage: holdfast needs Node 24 and this is ${process.versions.node}: run it as "npm run -s holdfast -- ARGS", which brings its own\n`,
  );
  process.exitCode = 1;
} else if (!existsSync(program)) {
  process.stderr.write(
    'error not_found: holdfast has not been built yet: run "npm start" once, or "npm run build"\n',
  );
  process.exitCode = 1;
} else {
  // Compiling takes longer than most commands do; where dist/ cannot be written to, this changes nothing.
  enableCompileCache(join(__dirname, '../dist/.compile-cache'));
  require(program);
}
