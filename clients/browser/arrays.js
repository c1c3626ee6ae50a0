// Numbers a user holds to coordinates: flattened, moved into the structure and to the nearest bound.

import { refuse, shown } from "./errors.js";

/** @import {Arrays, Structure} from "./types.d.ts" */

/** @param {number[]} shape */
export const product = (shape) => shape.reduce((size, each) => size * each, 1);

/**
 * Nested lists of this shape as one vector, the last index changing fastest; a typed array may be flat already. NaN for
 * what is missing (null, undefined). @type {(held: any, shape: number[], what?: string) => Float64Array}
 */
export function flatten(held, shape, what = "the array") {
  if (ArrayBuffer.isView(held) && shape.length > 1) return flatten(held, [product(shape)], what);
  if (shape.length > 0) {
    if (!(Array.isArray(held) || ArrayBuffer.isView(held)) || /** @type {any} */ (held).length !== shape[0]) {
      refuse("wrong-shape", `${what} is not of shape (${shape}), as the plan has it: ${shown(held)}`);
    }
    const [size, flat] = [product(shape.slice(1)), new Float64Array(product(shape))];
    Array.from(/** @type {any} */ (held), (part, i) => flat.set(flatten(part, shape.slice(1), what), i * size));
    return flat;
  }
  if (typeof (held ?? NaN) !== "number") refuse("not-numbers", `${what} holds ${shown(held)}, which is no number; use Number(...)`);
  return Float64Array.of(held ?? NaN);
}

/** @param {Structure} structure */
export function dimensionOf({ kind, shape, size, vectors }) {
  return kind === "symmetric" ? (size * (size + 1)) / 2 : kind === "span" ? vectors.length : product(shape);
}

/** @param {Arrays} arrays @param {number} place */
export const boundsAt = ({ bounds }, place) => bounds.map((bound) => (typeof bound === "number" ? bound : bound[place]));

/** Each coordinate within its bounds; missing ones in the middle. @param {Arrays} arrays @param {unknown} held */
export function coordinatesOf(arrays, held) {
  const { kind, shape, size, vectors } = arrays.structure;
  const flat = flatten(held, kind === "symmetric" ? [size, size] : shape);
  const values = kind === "symmetric" ? mirrored(flat, size) : kind === "span" ? projected(flat, vectors) : flat;
  return values.map((value, place) => {
    const [lower, upper] = boundsAt(arrays, place);
    return Math.min(Math.max(Number.isNaN(value) ? lower / 2 + upper / 2 : value, lower), upper);
  });
}

/** The upper triangle of a matrix and its mirror image, on average; either stands for the other. @param {Float64Array} flat @param {number} size */
function mirrored(flat, size) {
  const filled = flat.map((value, i) => (Number.isNaN(value) ? flat[(i % size) * size + Math.floor(i / size)] : value));
  const both = filled.map((value, i) => value / 2 + filled[(i % size) * size + Math.floor(i / size)] / 2);
  return both.filter((_, i) => i % size >= Math.floor(i / size));
}

/** Least-squares coefficients of public vectors, by Gram-Schmidt on them and on the array, which is as stable as QR. @param {Float64Array} flat @param {number[][]} vectors */
function projected(flat, vectors) {
  const far = 1e100; // stands for infinity
  const rows = [...vectors, flat.map((value) => Math.min(Math.max(value || 0, -far), far))].map((row) => Float64Array.from(row));
  const triangle = vectors.map((_, j) => {
    const length = Math.sqrt(rows[j].reduce((sum, entry) => sum + entry * entry, 0));
    const unit = rows[j].map((entry) => entry / length);
    return rows.map((row, k) => {
      const along = k < j ? 0 : row.reduce((sum, entry, i) => sum + entry * unit[i], 0);
      if (k > j) row.forEach((entry, i) => (row[i] = entry - along * unit[i]));
      return along;
    });
  });
  const found = new Float64Array(vectors.length);
  for (let j = vectors.length - 1; j >= 0; j--) {
    found[j] = found.reduce((rest, value, k) => (k > j ? rest - triangle[j][k] * value : rest), triangle[j][vectors.length]) / triangle[j][j];
  }
  return found;
}
