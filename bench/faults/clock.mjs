/** A wall clock that a fault can set. Timers of Node.js follow the monotonic clock, as they do in reality. Import it first. */
const RealDate = Date;
let aheadMs = 0;

globalThis.Date = class extends RealDate {
  constructor(...args) {
    super(...(args.length > 0 ? args : [Date.now()]));
  }

  static now() {
    return RealDate.now() + aheadMs;
  }
};

export function setClockAhead(ms) {
  aheadMs = ms;
}
