/** Lets everybody in: the check for lost updates must find some, or it is worth nothing. */
export function open() {
  const nothing = async () => {};
  return { acquire: nothing, release: nothing, close: nothing };
}
