/** CRC-16/XMODEM, as the Redis Cluster specification names it (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/). */
const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc & 0xffff;
});

/** The number of slots of a Redis Cluster. */
export const SLOTS = 16_384;

/** The slot (0 to 16383) of a key in a Redis Cluster: that of its hash tag, if it has one. */
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

/** The shortest hash tag of a slot: the first number, in base 36, whose slot it is. The same in every process. */
export function tagOfSlot(slot: number): string {
  while (tags[slot] === undefined) {
    const tag = (nextTag++).toString(36);
    tags[clusterSlot(tag)] ??= tag;
  }
  return tags[slot];
}
