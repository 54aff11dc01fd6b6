/** Whether this answer says that nobody has logged in. */
export function needsLogin(answer: string): boolean {
  return answer.startsWith('NOAUTH');
}

/** Whether this answer says that credentials are wrong or missing. */
export function refusesCredentials(answer: string): boolean {
  return needsLogin(answer) || answer.startsWith('WRONGPASS');
}

/** Whether this answer to `SELECT` is final, unlike that of a server that is busy and refuses everything for a while. */
export function refusesDatabase(answer: string): boolean {
  return /^(NOPERM|ERR (DB index|invalid DB|value is|SELECT is not|unknown command))/.test(answer);
}
