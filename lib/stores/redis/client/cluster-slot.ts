/** CRC-16/XMODEM, as in the Redis Cluster specification (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/). */
const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc & 0xffff;
});

/** The number of slots of a Redis Cluster. */
export const SLOTS = 16_384;

/** Returns the slot (0 to 16383) of a key in a Redis Cluster. Only the hash tag counts, if there is one. */
export function clusterSlot(key: string): number {
  const open = key.indexOf('{');
  const close = open < 0 ? -1 : key.indexOf('}', open + 1);
  return close > open + 1 ? slotOf(key, open + 1, close) : slotOf(key, 0, key.length);
}

function slotOf(key: string, start: number, end: number): number {
  let crc = 0;
  for (let at = start; at < end; at++) {
    const code = key.charCodeAt(at);
    if (code > 127) return slotOfBytes(Buffer.from(key.slice(start, end)));
    crc = ((crc << 8) ^ TABLE[((crc >> 8) ^ code) & 0xff]!) & 0xffff;
  }
  return crc % SLOTS;
}

function slotOfBytes(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) crc = ((crc << 8) ^ TABLE[((crc >> 8) ^ byte) & 0xff]!) & 0xffff;
  return crc % SLOTS;
}

const tags: (string | undefined)[] = [];
let nextTag = 0;

/** Returns the shortest hash tag of a slot: the smallest number in that slot, in base 36. It is the same in every process. */
export function tagOfSlot(slot: number): string {
  while (tags[slot] === undefined) {
    const tag = (nextTag++).toString(36);
    tags[clusterSlot(tag)] ??= tag;
  }
  return tags[slot];
}
