import { beforeEach, describe, expect, it } from 'vitest';
import { examplesOf, generate } from './compile.js';

// The examples of the page are tests themselves: this imports each of them, and its tests run here.
let ran = 0;
const examples = examplesOf('docs/testing.md');

for (const [index, source] of examples.entries()) {
  const generated = generate(`testing-page-${index + 1}.ts`, source);
  describe(`example ${index + 1} of docs/testing.md`, async () => {
    beforeEach(() => void ran++);
    await import(/* @vite-ignore */ generated);
  });
}

it('the tests that docs/testing.md shows run and pass', () => {
  expect(examples).toHaveLength(6);
  expect(ran).toBe(10);
});
