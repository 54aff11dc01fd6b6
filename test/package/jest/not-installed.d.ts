// The parts of Jest that the tests use. This repository does not install Jest; the application that runs the tests
// does.

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
