/** Lets everybody in: the check for lost updates must find some, or it is worth nothing. */
export function open() {
  const nothing = async () => {};
  const turn = (_key, work) => work({ held: () => true });
  return { acquire: nothing, release: nothing, turn, close: nothing };
}
