import { formatDiagnosis } from '../api/diagnosis.js';
import { EXIT, type Action } from './command.js';
import { withLocks } from './open.js';
import { json, wrap } from './text.js';

/** Checks the servers, as an application does when it starts. */
export const doctor: Action = (call) =>
  // With the time limits of an application, since the doctor also checks those.
  withLocks(call, { admission: false }, async (locks) => {
    const { options, terminal } = call;
    const diagnosis = await locks.diagnose();
    terminal.print(options.json ? json(diagnosis) : wrap(formatDiagnosis(diagnosis), terminal.columns));
    const found = new Set(diagnosis.findings.map(({ severity }) => severity));
    if (found.has('error')) return EXIT.no;
    return options.strict && found.has('warning') ? EXIT.warnings : EXIT.ok;
  });
