import { readFileSync } from 'node:fs';

// Prints "N passed, N failed" from the JSON report of Vitest: node .ci/closing-line.mjs <report> <exit code>

const [report, exitCode] = process.argv.slice(2);
const { passed, failed } = counts(readFileSync(report, 'utf8'));
// A run can fail without a failed test: by an unhandled rejection, or before the first test.
console.log(`${passed} passed, ${exitCode === '0' ? failed : Math.max(failed, 1)} failed`);

function counts(json) {
  if (json === '') return { passed: 0, failed: 0 };
  const { numPassedTests, numFailedTests, testResults } = JSON.parse(json);
  // A file that cannot be loaded has no tests of its own.
  const brokenFiles = testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && !assertionResults.some((test) => test.status === 'failed'),
  );
  return { passed: numPassedTests, failed: numFailedTests + brokenFiles.length };
}
