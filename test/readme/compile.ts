import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { LockLostReason } from 'nest-redis-lock';

/** The folder of the repository. */
export const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = fileURLToPath(new URL('.generated/', import.meta.url));

/** The text of a file of the repository. */
export const read = (path: string): string => readFileSync(root + path, 'utf8');

/** The files of a folder and of those in it, whose names end like that. */
export const filesIn = (folder: string, end: string): string[] =>
  readdirSync(root + folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith(end) && !file.includes('node_modules'))
    .map((file) => `${folder}/${file}`);

/**
 * The TypeScript examples of a page, in order. Code of other libraries is in blocks of `typescript`, and is left out.
 */
export function examplesOf(page: string): string[] {
  return [...read(page).matchAll(/^```ts\n(.*?)^```/gms)].map((match) => match[1]!);
}

/** Writes a module that can be compiled and imported. @returns its path */
export function generate(name: string, source: string): string {
  const path = `${folder}${name}`;
  // Test files share it: if it were written again, it would be loaded again, with classes different from those that
  // others have loaded.
  if (existsSync(path) && readFileSync(path, 'utf8') === source) return path;
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${path}.${process.pid}`, source);
  renameSync(`${path}.${process.pid}`, path);
  return path;
}

/**
 * A module for each example of a page. Its file has the name in its first line, as others import it, or the name of the
 * page.
 * @returns their paths
 */
export function modulesOf(page: string): string[] {
  return examplesOf(page).map((source, index) => {
    const [, name = `${page.slice(0, -'.md'.length).replaceAll('/', '-')}-${index + 1}.ts`] =
      /^\/\/ (\S+\.ts)\n/.exec(source) ?? [];
    return generate(name, `${source}\nexport {};\n`);
  });
}

/** The first example of a page that contains a text, as a module. */
export async function exampleWith<T>(page: string, text: string): Promise<T> {
  const found = modulesOf(page).find((_, index) => examplesOf(page)[index]!.includes(text));
  return (await import(/* @vite-ignore */ found!)) as T;
}

/**
 * A module for each example in docs.
 * @returns their paths
 */
export function modulesOfDocs(): string[] {
  const pages = readdirSync(`${root}docs`).filter((file) => file.endsWith('.md'));
  return pages.flatMap((page) => modulesOf(`docs/${page}`));
}

/** The pages of the skills for assistants: each has a folder. */
export const SKILLS: readonly string[] = readdirSync(`${root}skills`).map((name) => `skills/${name}/SKILL.md`);

/** The table of products that the README leaves to its reader: all instances of an application share it. */
export const STOCK = `
import { setImmediate as turn } from 'node:timers/promises';
const counts = new Map<string, number>();
export class Stock {
  async count(sku: string): Promise<number> {
    await turn();
    return counts.get(sku)!;
  }
  async setCount(sku: string, count: number): Promise<void> {
    await turn();
    counts.set(sku, count);
  }
}
`;

/** The compiler refuses this list if a reason is missing. */
export const REASONS: Readonly<Record<LockLostReason, true>> = {
  expired: true,
  forced: true,
  overstayed: true,
  released: true,
  shutdown: true,
  stalled: true,
  stolen: true,
  unavailable: true,
};
