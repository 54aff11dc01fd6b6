import { describeAdapter } from './describe-adapter.js';
import { PACKAGES } from './packages.js';

// In simulated time.

for (const [name, each] of Object.entries(PACKAGES)) describeAdapter(name, each);
