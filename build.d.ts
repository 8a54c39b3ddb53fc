/** What the bundler writes into the program (esbuild.mjs); the test runner sets them too. */

/** The version in package.json. */
declare const __VERSION__: string;
/** 16 hex digits: the hash of everything that was built. Same id, same program. */
declare const __BUILD_ID__: string;
/** ISO 8601 UTC: when the newest source of this build was written. Orders two builds that differ. */
declare const __BUILD_TIME__: string;
/** `holdfast/sidecar:<hash of its recipe>` */
declare const __SIDECAR_IMAGE__: string;
/** `holdfast/agent:<hash of its recipe>`: what a profile without an image runs in. */
declare const __AGENT_IMAGE__: string;
/** The version of Node that the program runs with, and that it brings to hosts that lack it. */
declare const __NODE_VERSION__: string;
