import { Copies, type LibraryPlace } from './copies.js';
import { planOf, type Topology } from './plan.js';
import { simulate } from './simulate.js';

export async function main(args: string[], place: LibraryPlace): Promise<number> {
  const copies = new Copies(place);
  const [from, count, topology] = [Number(args[0]), Number(args[1]), args[2] as Topology];
  const cpu = process.cpuUsage();
  let grants = 0;
  const marks = new Map<string, number>();
  for (let seed = from; seed < from + count; seed++) {
    const plan = planOf(seed, topology);
    const result = await simulate(plan, copies, args[3] ? (line) => process.stdout.write(line.slice(0, 300).trimEnd() + '\n') : undefined);
    grants += result.figures.grants;
    for (const [mark, n] of result.marks) marks.set(mark, (marks.get(mark) ?? 0) + n);
    if (result.violations.length > 0) console.log(seed, result.hash, result.seconds, result.violations.length, result.violations.slice(0, 3));
  }
  const { user, system } = process.cpuUsage(cpu);
  const cpuS = (user + system) / 1e6;
  console.log(`${count} seeds, ${grants} grants, ${cpuS.toFixed(1)} s, ${(grants / cpuS).toFixed(0)} locks/s`, Object.fromEntries(marks));
  return 0;
}
