import { formatDiagnosis } from '../api/diagnosis.js';
import type { Action } from './command.js';
import { EXIT } from './exit-codes.js';
import { openToLook } from './open.js';
import { json, wrap } from './text.js';

/** Checks the servers, as an application does when it starts. */
export const doctor: Action = async (call) => {
  const { options, terminal } = call;
  const locks = await openToLook(call, {}); // with the time limits of an application, which it checks, too
  try {
    const diagnosis = await locks.diagnose();
    if (options.json) terminal.print(json(diagnosis));
    else {
      const lines = formatDiagnosis(diagnosis).split('\n');
      for (const line of lines) terminal.print(wrap(line, terminal.columns));
    }
    const found = new Set(diagnosis.findings.map(({ severity }) => severity));
    if (found.has('error')) return EXIT.no;
    return options.strict && found.has('warning') ? EXIT.warnings : EXIT.ok;
  } finally {
    await locks.close();
  }
};
