// Vectors with a bounded norm to whole numbers of 2^-15 (docs/wire.md, "Vectors with a bounded norm", steps 1 to 4).

import { flatten, product } from "./arrays.js";
import { keyed } from "./canonical.js";
import { refuse, shown } from "./errors.js";

/** @import {Domain} from "./types.d.ts" */

const ONE = 2 ** 15;

/** @param {Domain} domain */
export const ballDimension = ({ shape, layers }) => (shape ? product(shape) : layers.reduce((sum, layer) => sum + product(layer.shape), 0));

/** @param {Domain} domain */
export const paddedSize = (domain) => Math.max(2, 2 ** Math.ceil(Math.log2(ballDimension(domain))));

/** An array; of layers a list or an object of them in the plan's order, or one typed array. @param {Domain} domain @param {any} held */
function vectorOf(domain, held) {
  const { shape, layers } = domain;
  if (shape || ArrayBuffer.isView(held)) return flatten(held, shape ?? [ballDimension(domain)], "the update");
  const names = layers.map(({ name }, i) => name ?? String(i));
  if (!held || String(Object.keys(held)) !== String(names)) {
    refuse("layers-mismatch", `the update is not of the plan's layers in their order: ${shown(names.join(", "))}`);
  }
  return Float64Array.from(layers.flatMap(({ shape }, i) => [...flatten(held[names[i]], shape, `layer ${shown(names[i])}`)]));
}

/** The difference to the public centre, scaled down to the clipping norm where it is longer. @param {Domain} domain @param {unknown} held */
export function withinBall(domain, held) {
  const { center, clipping_norm } = domain;
  const flat = vectorOf(domain, held).map((value, i) => (center ? value - center[i] : value));
  const bad = flat.findIndex((value) => !Number.isFinite(value));
  if (bad >= 0) refuse(Number.isNaN(flat[bad]) ? "missing-value" : "out-of-bounds", `entry ${bad} is ${flat[bad]}; all must be finite`);
  const squares = squaredNorm(flat);
  if (squares <= (clipping_norm * (1 + 1e-6)) ** 2) return flat; // longer by so little is rounding
  const largest = squares < Infinity ? 1 : flat.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const factor = clipping_norm / Math.sqrt(squaredNorm(flat.map((value) => value / largest))) / largest;
  return flat.map((value) => value * factor);
}

/** Added up in the order of the Python client, so that both scale by the same factor. @param {Float64Array} flat */
function squaredNorm(flat) {
  const [whole, lanes] = [flat.length - (flat.length % 8), new Float64Array(9)];
  flat.forEach((value, i) => (lanes[i < whole ? 1 + (i % 8) : 0] += value * value));
  return lanes.reduce((sum, lane) => sum + lane);
}

/**
 * Signs of a round, Hadamard's transform, clipping, and the norm enforced in whole numbers, on which privacy rests.
 * @param {Domain} domain @param {number} tau @param {Float64Array} flat @param {number} round
 */
export async function rotatedLevels(domain, tau, flat, round) {
  const x = new Float64Array(paddedSize(domain));
  const [digest, scale] = [await keyed(domain.seed), 1 / (domain.clipping_norm * tau)];
  for (let start = 0; start < flat.length; start += 512) {
    const signs = await digest([round, start / 512]);
    for (let i = start; i < Math.min(start + 512, flat.length); i++) {
      const minus = (signs.getUint8((i - start) >> 3) >> (7 - (i & 7))) & 1;
      x[i] = flat[i] * (minus ? -scale : scale);
    }
  }
  for (let stride = 1; stride < x.length; stride *= 2) {
    for (let i = 0; i < x.length; i++) if (!(i & stride)) [x[i], x[i + stride]] = [x[i] + x[i + stride], x[i] - x[i + stride]];
  }
  const most = squaresAllowed(x.length, tau);
  let levels = levelsOf(x, 1);
  let total = sumOfSquares(levels);
  for (let factor = 1, less = 2 ** -20, tries = 0; total > most; tries++, total = sumOfSquares(levels)) {
    factor *= Math.sqrt(Number(most) / Number(total)) * (1 - less);
    less *= less < 0.1 ? 4 : 1;
    levels = tries < 10 ? levelsOf(x, factor) : levels.map((level) => level / 2); // never seen; but it ends
  }
  return levels;
}

/** floor(2^30 size / tau^2), for the fraction that the double tau is. @param {number} size @param {number} tau */
export function squaresAllowed(size, tau) {
  let halvings = 0n;
  for (; !Number.isInteger(tau); halvings++) tau *= 2;
  return (BigInt(size) << (30n + 2n * halvings)) / BigInt(tau) ** 2n;
}

/** @param {Float64Array} x @param {number} factor */
function levelsOf(x, factor) {
  return Int32Array.from(x, (value) => Math.floor(Math.min(Math.max(value * (factor * ONE), -ONE), ONE) + (ONE + 0.5)) - ONE);
}

/** @param {Int32Array} levels */
function sumOfSquares(levels) {
  let total = 0n;
  for (let start = 0; start < levels.length; start += 65536) {
    total += BigInt(levels.subarray(start, start + 65536).reduce((sum, level) => sum + level * level, 0)); // below 2^53
  }
  return total;
}
