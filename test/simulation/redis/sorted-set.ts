type Member = readonly [member: string, score: number];

/** One end of a range of scores, such as `(5`. */
export interface Bound {
  readonly score: number;
  readonly isExclusive: boolean;
}

/** Members with scores, ordered by their scores, and by their bytes if the scores are equal. */
export class SortedSet {
  readonly #scores = new Map<string, number>();
  readonly #sorted: Member[] = [];

  constructor(members: Iterable<Member> = []) {
    for (const [member, score] of members) this.set(member, score);
  }

  get size(): number {
    return this.#scores.size;
  }

  get members(): readonly Member[] {
    return this.#sorted;
  }

  score(member: string): number | undefined {
    return this.#scores.get(member);
  }

  set(member: string, score: number): void {
    this.delete(member);
    this.#scores.set(member, score);
    this.#sorted.splice(this.#placeOf(member, score), 0, [member, score]);
  }

  delete(member: string): boolean {
    const score = this.#scores.get(member);
    if (score === undefined) return false;
    this.#scores.delete(member);
    this.#sorted.splice(this.#placeOf(member, score), 1);
    return true;
  }

  /** The members whose scores are between two bounds. */
  within(min: Bound, max: Bound): readonly Member[] {
    const begin = this.#count(([, score]) => score < min.score || (min.isExclusive && score === min.score));
    const end = this.#count(([, score]) => score < max.score || (!max.isExclusive && score === max.score));
    return this.#sorted.slice(begin, end);
  }

  #placeOf(member: string, score: number): number {
    return this.#count(([each, other]) => other < score || (other === score && each < member));
  }

  /** The number of members that come before: the condition is true for exactly the first ones. */
  #count(isBefore: (member: Member) => boolean): number {
    let [least, most] = [0, this.#sorted.length];
    while (least < most) {
      const middle = (least + most) >> 1;
      if (isBefore(this.#sorted[middle]!)) least = middle + 1;
      else most = middle;
    }
    return least;
  }
}
