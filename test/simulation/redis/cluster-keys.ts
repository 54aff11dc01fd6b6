export const SLOTS = 16_384;

/** Commands whose arguments are not keys. */
const WITHOUT_KEYS = new Set(
  'CONFIG TIME PUBLISH SUBSCRIBE PSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE PUBSUB SCAN KEYS DBSIZE FLUSHALL SCRIPT'.split(
    ' ',
  ),
);
/** Commands whose arguments are all keys, or channels of a slot. */
const KEYS_ONLY = new Set('DEL UNLINK EXISTS MGET SSUBSCRIBE SUNSUBSCRIBE'.split(' '));

/** The keys of a data command, and the channels of sharded publish/subscribe, which also have a slot. */
export function keysOf(name: string, args: readonly string[]): readonly string[] {
  const command = name.toUpperCase();
  if (WITHOUT_KEYS.has(command)) return [];
  if (KEYS_ONLY.has(command)) return args;
  if (command.startsWith('EVAL')) return args.slice(2, 2 + (Number(args[1]) || 0));
  return args.slice(0, 1);
}

/** The slot of a key: of the part in braces, if there is one. */
export function keySlot(key: string): number {
  const begin = key.indexOf('{');
  const end = key.indexOf('}', begin + 1);
  const tag = begin >= 0 && end > begin + 1 ? key.slice(begin + 1, end) : key;
  return crc16(tag) % SLOTS;
}

/** CRC-16/XMODEM of a byte string. */
function crc16(text: string): number {
  let crc = 0;
  for (let at = 0; at < text.length; at++) {
    crc ^= text.charCodeAt(at) << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0xffff;
}
