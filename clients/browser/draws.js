// Secure bits to exact draws: nothing rounds, and no value is likelier than it should be.

const pool = new Uint32Array(1024);
let left = 0;

/** 32 secure bits, used once. */
export function word() {
  if (left === 0) left = crypto.getRandomValues(pool).length;
  const drawn = pool[--left];
  pool[left] = 0;
  return drawn;
}

/** A uniform integer below `bound`, at most 2^32: words beyond its largest multiple are drawn again. @param {number} bound */
export function below(bound) {
  const fair = 2 ** 32 - (2 ** 32 % bound);
  for (;;) {
    const drawn = word();
    if (drawn < fair) return drawn % bound;
  }
}

/**
 * True with probability exactly `chance`, any double from 0 to 1: uniform bits against its bits, 32 at a time, until
 * they differ. Scaling by 2^32 and taking the whole part away are exact in binary. @param {number} chance
 */
export function coin(chance) {
  for (let rest = chance; rest > 0; ) {
    rest *= 2 ** 32;
    const [digit, drawn] = [Math.floor(rest), word()];
    if (drawn !== digit) return drawn < digit;
    rest -= digit;
  }
  return false;
}

/** A whole number, up or down at random so that the mean stays. @param {number} place */
export function rounded(place) {
  const floor = Math.floor(place);
  return floor + Number(coin(place - floor));
}

/** The first `placed` of all items in random order, all orders equally likely. @param {number[]} items @param {number} placed */
export function shuffled(items, placed = items.length) {
  const urn = [...items];
  for (let place = 0; place < placed; place++) {
    const drawn = place + below(urn.length - place);
    [urn[place], urn[drawn]] = [urn[drawn], urn[place]];
  }
  return urn.slice(0, placed);
}
