/** What went wrong: `problem`, a name that never changes its meaning; `final` if the same will never succeed. */
export class ShufflesumError extends Error {
  /** @param {string} problem @param {string} message @param {boolean} [final] @param {unknown} [cause] */
  constructor(problem, message, final = true, cause = undefined) {
    super(message, { cause });
    this.name = "ShufflesumError";
    this.problem = problem;
    this.final = final;
  }
}

/** @type {(problem: string, message: string, cause?: unknown) => never} */
export function refuse(problem, message, cause) {
  throw new ShufflesumError(problem, message, true, cause);
}

/** A value as messages name it. @param {unknown} value */
export function shown(value) {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
