// Labels by their text, the same as everywhere else, whatever type they come in.

import { floatText } from "./canonical.js";
import { refuse, shown } from "./errors.js";

/** @import {Labels} from "./types.d.ts" */

// What Python's str.strip takes away, which is not quite what trim() does.
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
const AROUND = new RegExp(`^${SPACE}|${SPACE}$`, "g");

/** NFC without whitespace around it; 1, 1n and "1" are one, true and "true", too; "" where missing. @type {(value: unknown) => string} */
export function textOf(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (typeof value === "string") return value.normalize("NFC").replace(AROUND, "");
  if (typeof value === "number" && Number.isFinite(value)) {
    return Number.isInteger(value) && Math.abs(value) < 2 ** 63 ? String(BigInt(value)) : floatText(value);
  }
  if (typeof value === "boolean" || typeof value === "bigint") return String(value);
  refuse("wrong-type", `${shown(value)} is no label; labels are text, whole numbers, or true and false`);
}

/** @param {Labels} labels */
export const sizeOf = (labels) => (typeof labels === "number" ? labels : labels.length);

/** The place of a label in the plan's list, or -1. @param {Labels} labels @param {unknown} value */
export function codeOf(labels, value) {
  const text = textOf(value);
  if (typeof labels === "number") return /^(0|[1-9]\d{0,9})$/.test(text) && Number(text) < labels ? Number(text) : -1;
  const place = text ? labels.findIndex((label) => textOf(label) === text) : -1;
  return place >= 0 ? place : labels.findIndex((label) => typeof label === "boolean" && String(label) === text.toLowerCase());
}

/** The same for a label that must be there. @param {Labels} labels @param {unknown} value */
export function knownCode(labels, value) {
  const code = codeOf(labels, value);
  if (code >= 0) return code;
  if (textOf(value) === "") refuse("missing-value", `the label is missing (${shown(value)})`);
  const listed = typeof labels === "number" ? `0 to ${labels - 1}` : shown(labels.join(", "));
  refuse("unknown-label", `the label ${shown(value)} is not among the ${sizeOf(labels)} of the plan (${listed})`);
}
