// The ids of plans and tasks: SHA-256 of JSON as Python writes it, to the last character. And bytes.

// JSON.parse does not tell 1 from 1.0, but Python writes them differently: these fields hold floating-point numbers.
const FLOATS = /^(b(ounds|ins)|vectors|center|clipping_norm|(noise_)?probabilit(y|ies)|chance|amplitude|tau|noise|epsilon|delta|honest_fraction)$/;

/** Keys in order, no spaces, ASCII only. @type {(value: any, float?: boolean) => string} */
export function canonical(value, float = false) {
  if (typeof value === "number" && float) return floatText(value);
  if (typeof value === "string") {
    return JSON.stringify(value).replace(/[\x7f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  }
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item, float))}]`;
  if (value === null || typeof value !== "object") return String(value);
  const fields = Object.keys(value).sort();
  return `{${fields.map((name) => `${canonical(name)}:${canonical(value[name], name !== "half_length" && (float || FLOATS.test(name)))}`)}}`;
}

/** The shortest digits that read back exactly, laid out as Python's `repr`. @param {number} number */
export function floatText(number) {
  const sign = number < 0 || Object.is(number, -0) ? "-" : "";
  const [mantissa, power] = Math.abs(number).toExponential().split("e");
  const [digits, exponent] = [mantissa.replace(".", ""), Number(power)];
  if (exponent < -4 || exponent >= 16) return `${sign}${mantissa}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  return `${sign}${digits.slice(0, exponent + 1).padEnd(exponent + 1, "0")}.${digits.slice(exponent + 1) || "0"}`;
}

/** SHA-256 of the canonical form, in hexadecimal. @param {unknown} value */
export async function idOf(value) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical(value)));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** So many bytes from lower-case hexadecimal digits; none where there are others. @param {string} text @param {number} size */
export function fromHex(text, size) {
  const fits = new RegExp(`^[0-9a-f]{${2 * size}}$`).test(text);
  return Uint8Array.from(fits ? (text.match(/../g) ?? []) : [], (pair) => parseInt(pair, 16));
}

/** HMAC-SHA-512 of numbers of four bytes each and more bytes. @param {string} key of 16 bytes, in hexadecimal */
export async function keyed(key) {
  const imported = await crypto.subtle.importKey("raw", fromHex(key, 16), { name: "HMAC", hash: "SHA-512" }, false, ["sign"]);
  return async (/** @type {number[]} */ numbers, rest = new Uint8Array()) => {
    const message = new Uint8Array(4 * numbers.length + rest.length);
    numbers.forEach((number, place) => new DataView(message.buffer).setUint32(4 * place, number));
    message.set(rest, 4 * numbers.length);
    return new DataView(await crypto.subtle.sign("HMAC", imported, message));
  };
}
