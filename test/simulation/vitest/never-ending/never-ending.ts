import { afterAll, afterEach, beforeAll, beforeEach, describe, it, onTestFinished } from 'vitest';

const forEver = () => new Promise<void>(() => {});

// More than Vitest runs at a time: each has to give its place back.
it.each([1, 2, 3, 4, 5, 6])('never ends: %i', forEver);

it('asks for what never ends', () => onTestFinished(forEver));

describe('beforeAll', () => {
  beforeAll(forEver);
  it('does not run', () => {});
});

describe('what beforeAll returns', () => {
  beforeAll(() => forEver);
  it('runs before it', () => {});
});

describe('beforeEach', () => {
  beforeEach(forEver);
  it('does not begin', () => {});
});

describe('afterEach', () => {
  afterEach(forEver);
  it('runs, and fails', () => {});
});

describe('afterAll', () => {
  afterAll(forEver);
  it('runs before it', () => {});
});

it('comes after all that', () => {});
