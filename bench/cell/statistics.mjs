/** Milliseconds of the clock that all processes of a machine share. */
export function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}

export function sorted(values) {
  return Float64Array.from(values).sort();
}

/** @param ascending sorted values */
export function quantile(ascending, part) {
  return ascending.length === 0 ? undefined : ascending[Math.round(part * (ascending.length - 1))];
}

export function median(values) {
  const ascending = sorted(values);
  const middle = Math.floor(ascending.length / 2);
  return ascending.length % 2 === 1 ? ascending[middle] : (ascending[middle - 1] + ascending[middle]) / 2;
}

export function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

export function cpuUs(since) {
  const { user, system } = process.cpuUsage(since);
  return user + system;
}
