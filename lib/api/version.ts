/** The version of this package: `.ci/version.mjs` writes it, out of package.json. */
export const VERSION = '0.1.0';
