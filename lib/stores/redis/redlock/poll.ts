/** The answers of several nodes to one question, as they come in. */
export class Poll<Answer> {
  readonly #answers: (Answer | undefined)[] = [];
  readonly #listeners: ((answer: Answer, node: number) => void)[] = [];
  #open: number;

  /** @param nodes how many nodes are asked */
  constructor(nodes: number) {
    this.#open = nodes;
    for (let node = 0; node < nodes; node++) this.#answers.push(undefined);
  }

  /** The answer of each node; undefined while there is none. */
  get answers(): readonly (Answer | undefined)[] {
    return this.#answers;
  }

  /** How many answers are still to come. */
  get open(): number {
    return this.#open;
  }

  /** Takes the answer of a node, by its index: its only one. */
  take(node: number, answer: Answer): void {
    this.#answers[node] = answer;
    this.#open--;
    // A listener that is added meanwhile gets this answer from `each`.
    const { length } = this.#listeners;
    for (let index = 0; index < length; index++) this.#listeners[index]!(answer, node);
  }

  /**
   * Decides as soon as the answers allow it, without waiting for the rest.
   * @param decide called after each answer with those that are in and how many are open; must decide when none is open
   * @param settled called once with the decision
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

  /** Calls the listener with each answer: with those that are in at once, with the others as they come. */
  each(listener: (answer: Answer, node: number) => void): void {
    this.#answers.forEach((answer, node) => {
      if (answer !== undefined) listener(answer, node);
    });
    this.#listeners.push(listener);
  }
}
