import axe from 'axe-core';
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core';
import { expect, onTestFinished } from 'vitest';
import { provideChromium } from '../../servers/find-chromium.js';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-sync'];

export async function startChromium(): Promise<Browser> {
  return chromium.launch({ executablePath: await provideChromium(), args: FLAGS });
}

/**
 * Opens a page in its own browser profile. If the policy of the page blocks something, or something fails in it, the
 * test fails.
 */
export async function openTab(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Page> {
  const context = await browser.newContext({ locale: 'en-GB', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const troubles: string[] = [];
  page.on('console', (line) => {
    // One test causes this answer on purpose.
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

/** The problems that axe finds in the page now, in short. */
export async function complaintsOf(page: Page): Promise<string[]> {
  await page.evaluate(axe.source); // through the debugger, to which no policy of the page applies
  const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: typeof axe }).axe.run());
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target.join(' ')}`));
}
