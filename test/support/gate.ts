/** A gate that the test opens: work waits for it, and ends when the test says so. */
export class Gate {
  open!: () => void;
  readonly opened = new Promise<void>((resolve) => (this.open = resolve));
}
