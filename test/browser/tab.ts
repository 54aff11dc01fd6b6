import axe from 'axe-core';
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core';
import { expect, onTestFinished } from 'vitest';
import { provideChromium } from '../../servers/find-chromium.js';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-sync'];

export async function startChromium(): Promise<Browser> {
  return chromium.launch({ executablePath: await provideChromium(), args: FLAGS });
}

/** Opens a page in a browser profile of its own. Whatever the page was refused by its policy, or failed in, fails the test. */
export async function openTab(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Page> {
  const context = await browser.newContext({ locale: 'en-GB', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const troubles: string[] = [];
  page.on('console', (line) => {
    // The page expects this answer of one test.
    if (['error', 'warning'].includes(line.type()) && !line.text().includes('403')) troubles.push(line.text());
  });
  page.on('pageerror', (error) => troubles.push(String(error)));
  onTestFinished(async () => {
    await context.close();
    expect(troubles).toEqual([]);
  });
  await page.goto(url);
  return page;
}

/** What axe has against a page as it is now, in short. */
export async function complaintsOf(page: Page): Promise<string[]> {
  await page.evaluate(axe.source); // by the debugger, which no policy of the page concerns
  const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: typeof axe }).axe.run());
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target.join(' ')}`));
}
