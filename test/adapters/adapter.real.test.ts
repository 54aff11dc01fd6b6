import { describeRefusals } from './describe-adapter.js';
import { PACKAGES } from './packages.js';

// On real servers.

for (const [name, each] of Object.entries(PACKAGES)) describeRefusals(name, each);
