// What a user holds to the cells of its reports, for every domain and mechanism (docs/wire.md, "Report").

import { boundsAt, coordinatesOf, dimensionOf, flatten } from "./arrays.js";
import { ballDimension, paddedSize, rotatedLevels, withinBall } from "./ball.js";
import { keyed } from "./canonical.js";
import { below, coin, rounded, shuffled } from "./draws.js";
import { refuse, shown } from "./errors.js";
import { codeOf, knownCode, sizeOf, textOf } from "./labels.js";

/** @import {Arrays, Domain, Plan} from "./types.d.ts" */

const BLANK = 4294967295;
const MOST_LABEL_POSITIONS = 64; // of more labels, those that a user chose share one position

/** How many numbers are estimated, cells there are, and reports everybody sends. @param {Plan} plan @returns {{ dimension: number, cells: number, reports: number }} */
export function sizesOf(plan) {
  const { domain, mechanism } = plan;
  const dimension = domain.kind === "arrays" ? dimensionOf(domain.structure) : domain.bins ? domain.bins.length - 1 : sizeOf(domain.labels ?? 0);
  const labels = dimension + Number(domain.other ?? false);
  switch (`${domain.kind} ${mechanism.kind}`) {
    case "arrays randomized-response":
      return { dimension, cells: dimension * (mechanism.levels + 1), reports: mechanism.coordinates };
    case "categories randomized-response":
      return { dimension: labels, cells: labels, reports: 1 };
    case "categories noisy-slots":
      return { dimension: labels, cells: labels, reports: 1 + mechanism.slots };
    case "open-vocabulary noisy-slots":
      return { dimension: 1, cells: domain.depth * domain.width, reports: 1 + mechanism.slots };
    case "categories noisy-table":
    case "multi-choice noisy-table":
    case "open-vocabulary noisy-table":
    case "arrays noisy-table":
    case "group-by noisy-table": {
      if (mechanism.noise_by === "curator") refuse("one-process-only", "this plan is for one process: nothing can be sent under it");
      const reports = positionsOf(plan)?.length ?? 0;
      if (domain.kind === "open-vocabulary") return { dimension: 1, cells: domain.depth * domain.width, reports };
      if (domain.kind === "categories" || domain.kind === "multi-choice") return { dimension: labels, cells: labels, reports };
      const { groups, coordinates, counted, cells } = digitsOf(plan);
      return { dimension: groups * coordinates, cells: groups * (coordinates * cells + counted), reports };
    }
    case "l2-ball one-bit":
      return { dimension: ballDimension(domain), cells: 2 * paddedSize(domain), reports: mechanism.bits * paddedSize(domain) };
    case "arrays noisy-counts":
    case "multi-choice noisy-counts":
    case "group-by noisy-counts": {
      const { groups, coordinates, groupCells, most, noise } = layoutOf(plan);
      return { dimension: groups * coordinates, cells: groups * groupCells, reports: most + noise };
    }
  }
  refuse("unsupported", `mechanism ${shown(mechanism.kind)} on domain ${shown(domain.kind)} is not known to this client`);
}

/** The position of each report of a user, in their order, where servers draw the noise; null where users do. @param {Plan} plan @returns {number[] | null} */
export function positionsOf(plan) {
  const { domain, mechanism } = plan;
  if (mechanism.kind !== "noisy-table") return null;
  if (domain.kind === "categories") return [0];
  if (domain.kind === "open-vocabulary") return [...Array(domain.depth).keys()];
  if (domain.kind === "multi-choice") {
    const size = sizeOf(domain.labels);
    return size <= MOST_LABEL_POSITIONS ? [...Array(size).keys()] : Array(domain.max_choices).fill(0);
  }
  const { coordinates, counted } = digitsOf(plan);
  return [...Array(coordinates * mechanism.radices.length + counted).keys()];
}

/**
 * Numbers under `noisy-table`: a digit has a cell for each of its values but a blank one, which is 0 of a binary digit and
 * the middle of an odd number of values; `cells` are those of a coordinate, of one group. @param {Plan} plan
 */
function digitsOf({ domain, mechanism: { radices } }) {
  const counted = Number(domain.kind === "group-by");
  const sizes = radices.map((radix) => (radix % 2 || radix === 2 ? radix - 1 : radix));
  const cells = sizes.reduce((sum, size) => sum + size, 0);
  return { groups: counted ? sizeOf(domain.labels) : 1, coordinates: dimensionOf((domain.values ?? domain).structure), counted, sizes, cells };
}

/**
 * Under `noisy-counts`: groups of cells, the digits of each coordinate and last a count; at most `most` are true of a user, and
 * at most `noise` more are sent. @param {Plan} plan
 */
function layoutOf({ domain, mechanism: { digits, trials, cap } }) {
  if (cap === null) refuse("one-process-only", "this plan is for one process: nothing can be sent under it");
  const counted = Number(domain.kind === "group-by");
  const groups = counted ? sizeOf(domain.labels) : 1;
  const coordinates = domain.kind === "multi-choice" ? sizeOf(domain.labels) : dimensionOf((domain.values ?? domain).structure);
  const groupCells = coordinates * digits + counted;
  const all = trials.reduce((sum, each, j) => sum + each * groups * (j < digits ? coordinates : 1), 0);
  return { groups, coordinates, groupCells, most: domain.kind === "multi-choice" ? domain.max_choices : groupCells, noise: Math.min(cap, all) };
}

/** The cells that this user sends, in the order they are made. @param {Plan} plan @param {unknown} held @param {number} round */
export async function encode(plan, held, round) {
  const { domain, mechanism } = plan;
  const { cells } = sizesOf(plan);
  switch (mechanism.kind) {
    case "randomized-response": {
      if (domain.kind === "arrays") return replaced(plan, coordinatesOf(domain, held));
      const own = categoryOf(domain, held);
      return [coin(mechanism.noise_probability) ? below(cells) : own];
    }
    case "noisy-slots": {
      const own = domain.kind === "open-vocabulary" ? await hashedCell(domain, held, round, below(domain.depth)) : categoryOf(domain, held);
      return [own, ...Array.from({ length: mechanism.slots }, () => (coin(mechanism.chance) ? below(cells) : BLANK))];
    }
    case "noisy-table": {
      if (domain.kind === "categories") return [categoryOf(domain, held)];
      if (domain.kind === "open-vocabulary") return Promise.all((positionsOf(plan) ?? []).map((s) => hashedCell(domain, held, round, s)));
      if (domain.kind !== "multi-choice") return digitsAt(plan, held);
      const [chosen, reports] = [chosenCodes(domain, held), positionsOf(plan) ?? []];
      if (sizeOf(domain.labels) <= MOST_LABEL_POSITIONS) return reports.map((code) => (chosen.includes(code) ? code : BLANK));
      return reports.map((_, i) => chosen[i] ?? BLANK);
    }
    case "noisy-counts":
      return added(plan, domain.kind === "multi-choice" ? chosenCodes(domain, held) : digitCells(plan, held));
  }
  const levels = await rotatedLevels(domain, mechanism.tau, withinBall(domain, held), round);
  const amplitude = mechanism.amplitude * 2 ** 31;
  return Array.from({ length: mechanism.bits * levels.length }, (_, i) => {
    const place = i % levels.length; // the coin is the privacy: (2^46 + A Y) / 2^47, exact in a double
    return 2 * place + Number(coin((2 ** 46 + amplitude * levels[place]) / 2 ** 47));
  });
}

/** Algorithms 1 and 2 of the paper: sample coordinates, round, replace some values by uniform ones. @param {Plan} plan @param {Float64Array} values */
function replaced({ domain, mechanism: { coordinates, levels, noise_probability, sampling } }, values) {
  const dimension = values.length;
  const start = (/** @type {number} */ block) => (block * dimension - ((block * dimension) % coordinates)) / coordinates;
  const chosen =
    sampling === "uniform"
      ? shuffled([...values.keys()], coordinates)
      : Array.from({ length: coordinates }, (_, block) => start(block) + below(start(block + 1) - start(block)));
  return chosen.map((place) => {
    const own = rounded(placeOf(domain, values, place, levels));
    return place * (levels + 1) + (coin(noise_probability) ? below(levels + 1) : own);
  });
}

/** A value's place on a scale from 0 to `levels`. @param {Arrays} arrays @param {Float64Array} values @param {number} place @param {number} levels */
function placeOf(arrays, values, place, levels) {
  const [lower, upper] = boundsAt(arrays, place);
  return Math.min(Math.max((values[place] - lower) * (levels / (upper - lower)), 0), levels);
}

/** Noise in every cell, drawn anew as a whole where it is above the cap, and blanks up to the same number for all. @param {Plan} plan @param {number[]} own */
function added(plan, own) {
  const { digits, trials, probabilities } = plan.mechanism;
  const { groups, coordinates, groupCells, most, noise } = layoutOf(plan);
  /** @type {number[]} */
  let drawn;
  do {
    drawn = [];
    for (let j = 0; j < trials.length; j++) {
      for (let group = 0; group < groups; group++) {
        for (let c = 0; c < (j < digits ? coordinates : 1); c++) {
          const cell = group * groupCells + (j < digits ? c * digits + j : groupCells - 1);
          for (let trial = 0; trial < trials[j]; trial++) if (coin(probabilities[j])) drawn.push(cell);
        }
      }
    }
  } while (drawn.length > noise);
  return [...own, ...drawn, ...Array(most + noise - own.length - drawn.length).fill(BLANK)];
}

/** The digits that are 1, in the cells of the user's group, and its count. @param {Plan} plan @param {any} held */
function digitCells(plan, held) {
  const { domain, mechanism: { digits } } = plan;
  const { groupCells } = layoutOf(plan);
  const [group, numbers] = wholeNumbers(domain, held, 2 ** digits - 1);
  const first = group * groupCells;
  /** @type {number[]} */
  const cells = [];
  for (const [c, whole] of numbers.entries()) for (let j = 0; j < digits; j++) if ((whole >> j) & 1) cells.push(first + c * digits + j);
  return domain.values ? [...cells, first + groupCells - 1] : cells;
}

/** The group, 0 where there are none, and each coordinate rounded at random to 0 to `levels`. @param {Domain} domain @param {any} held @param {number} levels @returns {[number, number[]]} */
function wholeNumbers(domain, held, levels) {
  const arrays = domain.values ?? domain;
  let [group, values] = [0, held];
  if (domain.values) {
    const [label, array] = Array.isArray(held) ? held : [held?.label, held?.values];
    if (array === undefined) refuse("wrong-type", `${shown(held)} is not {label, values}, which this task asks for`);
    [group, values] = [knownCode(domain.labels, label), array];
  }
  const coordinates = coordinatesOf(arrays, values);
  // in units of 2^-15, as the Python client has it
  return [group, [...coordinates.keys()].map((c) => rounded(placeOf(arrays, coordinates, c, levels * 2 ** 15) / 2 ** 15))];
}

/** Every digit at its position, lowest first, and last the user's group. @param {Plan} plan @param {any} held */
function digitsAt(plan, held) {
  const { domain, mechanism: { radices } } = plan;
  const { groups, counted, sizes } = digitsOf(plan);
  const [group, numbers] = wholeNumbers(domain, held, radices.reduce((product, radix) => product * radix, 1) - 1);
  let first = 0;
  /** @type {number[]} */
  const cells = [];
  for (let whole of numbers) {
    for (const [j, radix] of radices.entries()) {
      const value = whole % radix;
      whole = (whole - value) / radix;
      const blank = radix === 2 ? 0 : radix % 2 ? (radix - 1) / 2 : radix;
      cells.push(value === blank ? BLANK : first + group * sizes[j] + value - Number(value > blank));
      first += groups * sizes[j];
    }
  }
  return counted ? [...cells, first + group] : cells;
}

/** A list of labels, or true and false for each; of too many as many as the plan allows, at random. @param {Domain} domain @param {any} held */
function chosenCodes({ labels, max_choices }, held) {
  const list = held instanceof Set ? [...held] : (held ?? []);
  if (!Array.isArray(list)) refuse("wrong-type", `${shown(held)} is no list of labels, which this task asks for`);
  const isBoolean = (/** @type {unknown} */ each) => typeof each === "boolean";
  const ticked = list.length === sizeOf(labels) && list.every(isBoolean) && !(Array.isArray(labels) && labels.some(isBoolean));
  const codes = ticked ? [...list.keys()].filter((code) => list[code]) : list.map((label) => knownCode(labels, label));
  const chosen = [...new Set(codes)].sort((a, b) => a - b);
  return chosen.length > max_choices ? shuffled(chosen, max_choices) : chosen;
}

/** The cell of a label, or of a number in bins. @param {Domain} domain @param {unknown} held */
function categoryOf({ labels, bins, other }, held) {
  if (!bins) {
    const code = other ? codeOf(labels, held) : knownCode(labels, held);
    return code < 0 ? sizeOf(labels) : code;
  }
  const last = bins.length - 1;
  let [value] = flatten(held, [], "the number");
  if (!other) value = Math.min(Math.max(value, bins[0]), bins[last]);
  if (value >= bins[0] && value <= bins[last]) return Math.min(bins.findLastIndex((edge) => edge <= value), last - 1);
  return other ? last : refuse("missing-value", "the number is missing");
}

/** The bucket of a word under one of the round's functions. @param {Domain} domain @param {unknown} held @param {number} round @param {number} chosen */
async function hashedCell({ width, key }, held, round, chosen) {
  const text = textOf(held);
  if (text === "") refuse("missing-value", `the word is missing (${shown(held)})`);
  if (/\p{Surrogate}/u.test(text)) refuse("wrong-type", "half of a surrogate pair has no UTF-8");
  const digest = await (await keyed(key))([round, chosen >> 4], new TextEncoder().encode(text));
  return chosen * width + Number((BigInt(digest.getUint32(4 * (chosen % 16))) * BigInt(width)) >> 32n);
}
