import { Socket } from 'node:net';

/**
 * Counts the commands that this process sends to the ports. It reads what any client writes to their sockets, so it
 * does not see commands that a script runs on the server. Reading costs time, so a separate run does it.
 * @returns the count so far
 */
export function countCommands(ports) {
  const readers = new WeakMap();
  let commands = 0;
  // oxlint-disable-next-line typescript/unbound-method -- called with its socket below
  const { write } = Socket.prototype;
  Socket.prototype.write = function countingWrite(data, ...rest) {
    if (ports.includes(this.remotePort)) {
      if (!readers.has(this)) readers.set(this, new RequestReader());
      const encoding = typeof rest[0] === 'string' ? rest[0] : 'utf8';
      commands += readers.get(this).read(Buffer.isBuffer(data) ? data : Buffer.from(data, encoding));
    }
    return write.call(this, data, ...rest);
  };
  return () => commands;
}

/**
 * Counts how often this process writes to sockets of the ports. Commands that leave together are one write.
 * @returns the count so far
 */
export function countWrites(ports) {
  let writes = 0;
  for (const name of ['_write', '_writev']) {
    const write = Socket.prototype[name];
    Socket.prototype[name] = function countingWrite(...args) {
      if (ports.includes(this.remotePort)) writes++;
      return write.apply(this, args);
    };
  }
  return () => writes;
}

/** Reads requests of RESP: an array of bulk strings each. */
class RequestReader {
  #line = '';
  #bulksLeft = 0;
  #bytesLeft = 0;

  /** @returns how many requests ended in this chunk */
  read(chunk) {
    let ended = 0;
    for (let at = 0; at < chunk.length;) {
      if (this.#bytesLeft > 0) {
        const skipped = Math.min(this.#bytesLeft, chunk.length - at);
        at += skipped;
        this.#bytesLeft -= skipped;
        continue;
      }
      const character = String.fromCharCode(chunk[at++]);
      if (character !== '\n') {
        this.#line += character;
        continue;
      }
      const length = Number.parseInt(this.#line.slice(1), 10);
      if (this.#line[0] === '*') {
        this.#bulksLeft = length;
      } else {
        this.#bytesLeft = length + 2;
        if (--this.#bulksLeft === 0) ended++;
      }
      this.#line = '';
    }
    return ended;
  }
}
