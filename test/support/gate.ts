/** Something to wait for that the test opens: work that ends when the test says so. */
export class Gate {
  open!: () => void;
  readonly opened = new Promise<void>((resolve) => (this.open = resolve));
}
