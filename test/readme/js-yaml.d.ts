/** It comes without types. */
declare module 'js-yaml' {
  export function load(text: string): unknown;
}
