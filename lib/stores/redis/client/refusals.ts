/** Whether this answer says that credentials are wrong or missing. */
export function refusesCredentials(answer: string): boolean {
  return /^(NOAUTH|WRONGPASS)/.test(answer);
}

/** Whether this answer to `SELECT` is final, unlike that of a server that is busy and refuses everything for a while. */
export function refusesDatabase(answer: string): boolean {
  return /^(NOPERM|ERR (DB index|invalid DB|value is|SELECT is not|unknown command))/.test(answer);
}
