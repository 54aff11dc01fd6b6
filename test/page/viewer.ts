import { get, type IncomingMessage } from 'node:http';
import type { CanActivate } from '@nestjs/common';
import { onTestFinished } from 'vitest';
import { until } from '../support/until.js';

export class Anyone implements CanActivate {
  canActivate(): boolean {
    return true;
  }
}

/** What the page receives, as far as the tests read it. */
export interface Seen {
  ping: { available: boolean; nodes: { voting: number; of: number }; problems: string[] };
  problem?: string;
  incomplete?: string;
  rows?: {
    key: string;
    scope?: string;
    text?: string;
    label?: string;
    remainingMs: number;
    token?: number;
    digest?: string;
    holder: { pid?: number };
    mode?: string;
    permits?: { held: number; limit: number };
    holders?: { pid?: number; permits?: number; digest?: string }[];
    more?: number;
    waiting?: object[];
    behind?: number;
  }[];
}

/** A browser that reads the stream of a page, on its own connection. */
export class Viewer {
  readonly seen: Seen[] = [];
  /** The stream as it was sent. */
  text = '';
  hasEnded = false;

  private constructor(readonly response: IncomingMessage) {
    response.setEncoding('utf8').on('data', (text: string) => {
      this.text += text;
      const events = this.text.split('\n\n').slice(0, -1);
      const data = events.flatMap((event) => /^data: (.*)$/m.exec(event)?.[1] ?? []);
      for (const each of data.slice(this.seen.length)) this.seen.push(JSON.parse(each));
    });
    response.on('close', () => (this.hasEnded = true)).on('error', () => {});
  }

  /** It leaves when the test has finished. */
  static async open(url: string, headers: Record<string, string> = {}): Promise<Viewer> {
    const response = await open(url, headers);
    onTestFinished(() => void response.destroy());
    return new Viewer(response);
  }

  /** Waits until it sees this; what it saw before does not count. */
  sees<T>(what: string, condition: (seen: Seen) => T): Promise<NonNullable<T>> {
    let next = this.seen.length === 0 ? 0 : this.seen.length - 1;
    return until(
      () => {
        while (next < this.seen.length) {
          const found = condition(this.seen[next++]!);
          if (found) return found;
        }
        return undefined;
      },
      { what: `the viewer sees ${what}` },
    );
  }
}

function open(url: string, headers: Record<string, string>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false, headers }, resolve).on('error', reject);
  });
}
