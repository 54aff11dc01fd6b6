/** Lets everybody in. The check for lost updates must find some here; otherwise it proves nothing. */
export function open() {
  const nothing = async () => {};
  const turn = (_key, work) => work({ held: () => true });
  return { acquire: nothing, release: nothing, turn, close: nothing };
}
