/**
 * Makes a function that says whether a key matches: `*` matches any text. A regular expression could take exponential time if a pattern has
 * many `*`.
 */
export function matcherOf(match: string): (key: string) => boolean {
  const [first = '', ...parts] = match.split('*');
  const last = parts.pop();
  if (last === undefined) return (key) => key === match;
  return (key) => {
    const end = key.length - last.length;
    if (end < first.length || !key.startsWith(first) || !key.endsWith(last)) return false;
    let at = first.length;
    for (const part of parts) {
      const found = key.indexOf(part, at);
      if (found < 0) return false;
      at = found + part.length;
    }
    return at <= end;
  };
}
