/** The network between one process and one server, which a fault can spoil. It knows no protocol: any store can be behind it. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { nowMs } from '../cell/statistics.mjs';

/**
 * @returns `port`, to which the process connects; settings that a fault changes: `target`, the port of the server, `delayMs`,
 *   `isHole` (see `heal`) and `isDeaf` (current subscriptions get nothing more); and functions
 */
export async function startProxy(target) {
  const links = new Set();
  const proxy = { target, delayMs: 0, isHole: false, isDeaf: false };
  let cut; // what to cut next

  const close = (link) => {
    link.client.destroy();
    link.server.destroy();
  };
  const cutOff = (link) => {
    close(link);
    cut.done();
    cut = undefined;
  };

  const listener = createServer((client) => {
    const link = { client, server: connect(proxy.target, '127.0.0.1'), isNew: proxy.isDeaf, flushes: [] };
    links.add(link);
    const isCutAtRequest = (data) => {
      const text = data.toString('latin1');
      if (/subscribe/i.test(text)) link.listens = true;
      if (!cut || cut.link || !text.includes(cut.text)) return false;
      cut.link = link;
      if (cut.what === 'request') cutOff(link);
      return cut === undefined;
    };
    const isCutAtReply = () => {
      if (cut?.link !== link) return link.listens && proxy.isDeaf && !link.isNew;
      cutOff(link); // the server has executed the request
      return true;
    };
    link.flushes = [pass(client, link.server, proxy, isCutAtRequest), pass(link.server, client, proxy, isCutAtReply)];
    for (const socket of [client, link.server]) socket.on('close', () => proxy.isHole || links.delete(link));
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');

  return Object.assign(proxy, {
    port: listener.address().port,
    cutAll: () => links.forEach(close),
    /**
     * Cuts the next connection that sends this text, before its request arrives, or when the server replies.
     * @param what `request` or `reply`
     */
    cutNext: (what, text) => new Promise((done) => (cut = { what, text, done })),
    /** Ends a hole: data on its way arrives late, in order, as with TCP. */
    heal() {
      proxy.isHole = false;
      for (const { flushes } of links) for (const flush of flushes) flush();
    },
  });
}

/**
 * Passes bytes on in order, and then the end.
 * @returns a function that passes on what is due
 */
function pass(from, to, proxy, isDropped) {
  const queue = [];
  const flush = () => {
    while (queue.length > 0 && !proxy.isHole && queue[0].dueAt <= nowMs()) queue.shift().act();
  };
  const later = (act) => {
    queue.push({ act, dueAt: nowMs() + proxy.delayMs });
    if (proxy.delayMs > 0) setTimeout(flush, proxy.delayMs + 1);
    else flush();
  };
  from.setNoDelay();
  from.on('data', (data) => isDropped(data) || later(() => to.write(data)));
  from.on('error', () => {});
  from.on('close', () => later(() => to.destroy()));
  return flush;
}
