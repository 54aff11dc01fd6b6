import { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { infoFields, settingOf } from '../../lib/stores/redis/client/server-identity.js';
import { RedisServer } from '../support/redis-server.js';

describe('what a server says of itself', () => {
  it('is read alike from clients of both protocols', async () => {
    const server = await RedisServer.start({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
    onTestFinished(() => server.stop());
    for (const protocol of [2, 3] as const) {
      const client = new Redis(server.port, '127.0.0.1', { protocol });
      onTestFinished(() => client.disconnect());
      const settings: unknown = await client.config('GET', 'append*');
      expect([settingOf(settings, 'appendonly'), settingOf(settings, 'appendfsync')]).toEqual(['yes', 'always']);
      expect(settingOf(settings, 'save')).toBeUndefined();
      const fields = infoFields(await client.info('server'));
      expect(fields.get('run_id')).toMatch(/^[0-9a-f]{40}$/);
      expect(fields.get('tcp_port')).toBe(String(server.port));
      expect(fields.get('master_replid2')).toBeUndefined();
    }
  });

  it('is not mistaken for the value of another setting', () => {
    const reply = ['appendfilename', 'appendfsync', 'appendonly', 'yes'];
    expect(settingOf(reply, 'appendfsync')).toBeUndefined();
    expect(settingOf({ appendonly: 'yes' }, 'appendfsync')).toBeUndefined();
    expect(settingOf(undefined, 'appendfsync')).toBeUndefined();
  });
});
