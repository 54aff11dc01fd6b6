/** Whether this answer says that the credentials are not accepted, or missing. */
export function refusesCredentials(answer: string): boolean {
  return /^(NOAUTH|WRONGPASS)/.test(answer);
}

/** Whether this answer to `SELECT` is for good; a server that is busy, say, refuses anything for a while. */
export function refusesDatabase(answer: string): boolean {
  return /^(NOPERM|ERR (DB index|invalid DB|value is|SELECT is not|unknown command))/.test(answer);
}
