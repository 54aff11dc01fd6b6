/** One question to several nodes, and their answers as they come in. */
export class Poll<Answer> {
  /** By node; undefined: not yet. */
  readonly #answers: (Answer | undefined)[] = [];
  readonly #listeners: ((answer: Answer, node: number) => void)[] = [];
  #open: number;

  /**
   * @param nodes how many
   * @param ask asks one of them; `told` is to be called once, after this has returned
   */
  constructor(nodes: number, ask: (node: number, told: (answer: Answer) => void) => void) {
    this.#open = nodes;
    for (let node = 0; node < nodes; node++) this.#answers.push(undefined);
    for (let node = 0; node < nodes; node++) ask(node, (answer) => this.#take(node, answer));
  }

  /**
   * Settles as soon as the answers allow a decision, without waiting for the rest.
   * @param decide called after each answer with those that are in and how many are open; must decide when none is open
   */
  decide<Decision>(
    decide: (answers: readonly (Answer | undefined)[], open: number) => Decision | undefined,
    settled: (decision: Decision) => void,
  ): void {
    let isDecided = false;
    this.#listeners.push(() => {
      if (isDecided) return;
      const decision = decide(this.#answers, this.#open);
      if (decision === undefined) return;
      isDecided = true;
      settled(decision);
    });
  }

  /** Is told the answers that are in, and those still to come. */
  each(told: (answer: Answer, node: number) => void): void {
    this.#answers.forEach((answer, node) => {
      if (answer !== undefined) told(answer, node);
    });
    this.#listeners.push(told);
  }

  #take(node: number, answer: Answer): void {
    this.#answers[node] = answer;
    this.#open--;
    // Who begins to listen meanwhile is told of this answer then.
    const { length } = this.#listeners;
    for (let index = 0; index < length; index++) this.#listeners[index]!(answer, node);
  }
}
