/**
 * Collects the answers of all nodes and settles as soon as they allow a decision, without waiting for the rest.
 * @param decide called after each answer with those that are in (by node; undefined: not yet) and how many are open;
 *   must decide when none is open
 */
export function countVotes<Answer, Decision>(
  ballots: readonly Promise<Answer>[],
  decide: (answers: readonly (Answer | undefined)[], open: number) => Decision | undefined,
): Promise<Decision> {
  return new Promise((resolve, reject) => {
    const answers: (Answer | undefined)[] = ballots.map(() => undefined);
    let open = ballots.length;
    let decided = false;
    ballots.forEach((ballot, node) => {
      ballot.then((answer) => {
        if (decided) return;
        answers[node] = answer;
        const decision = decide(answers, --open);
        if (decision === undefined) return;
        decided = true;
        resolve(decision);
      }, reject);
    });
  });
}
