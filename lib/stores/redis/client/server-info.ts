/** The fields in the answer to INFO: lines `name:value` in sections. */
export function infoFields(text: string): ReadonlyMap<string, string> {
  return new Map([...text.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name!, value!]));
}

/** The value of a setting in the answer to CONFIG GET: a list, or an object for clients that map RESP3 replies to those. */
export function settingOf(reply: unknown, name: string): string | undefined {
  let value: unknown;
  if (Array.isArray(reply)) {
    // Names and values take turns: a value may look like a name.
    const at = reply.findIndex((each, index) => index % 2 === 0 && each === name);
    if (at >= 0) value = (reply as unknown[])[at + 1];
  } else {
    value = (reply as Record<string, unknown> | null | undefined)?.[name];
  }
  return typeof value === 'string' ? value : undefined;
}
