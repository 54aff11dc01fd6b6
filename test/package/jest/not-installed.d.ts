// What the tests use of Jest, which this repository does not install; the application that runs them does.

declare module '@jest/globals' {
  export { afterEach, beforeEach, describe, expect, it } from 'vitest';
  export const jest: {
    useFakeTimers(): void;
    advanceTimersByTime(ms: number): void;
    setSystemTime(now: number): void;
  };
}

declare module 'expect' {
  export interface Matchers<R, T = unknown> {
    readonly of?: [R, T];
  }
}
