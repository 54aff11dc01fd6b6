/** The version of this package; `.ci/version.mjs` copies it from package.json. */
export const VERSION = '0.1.0';
