// Asking a server until it has answered for good: what it tells not yet is asked again, what it tells never is not.

import { word } from "./draws.js";
import { ShufflesumError } from "./errors.js";

const PREFIX = "urn:shufflesum:problem:";
const MOST_BYTES = 1 << 16; // of a problem, or of an answer unless more is asked for
const [FIRST_PAUSE, LONGEST_PAUSE, LONGEST_WAIT, ONE_REQUEST] = [100, 10_000, 60_000, 30_000]; // milliseconds

/**
 * The text, of `most` bytes or fewer, of the answer with status `yes`; throws the refusal that is final, or the last one
 * when `timeout` milliseconds are over.
 * @param {string} url @param {number} yes @param {number} timeout @param {RequestInit} [request] @param {number} [most]
 */
export async function askUntil(url, yes, timeout, request, most = MOST_BYTES) {
  const end = Date.now() + timeout;
  for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    /** @type {ShufflesumError} */
    let problem;
    let wait = pause;
    try {
      // nothing that tells who asks: no cookies, and of the page's address no more than its origin
      const answer = await fetch(url, {
        credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store", redirect: "error",
        signal: AbortSignal.timeout(ONE_REQUEST), ...request,
      }); // prettier-ignore
      const text = await textOf(answer, answer.status === yes ? most : MOST_BYTES);
      if (answer.status === yes && text !== null) return text;
      problem = problemOf(url, answer.status, text);
      const header = answer.headers.get("Retry-After") ?? "";
      if (/^\d+$/.test(header)) wait = Math.max(wait, Math.min(1000 * Number(header), LONGEST_WAIT));
    } catch (cause) {
      const message = `${url} did not answer, or does not allow this page's origin (--allow-origin); what was made is kept: try again, the same bytes will go`;
      problem = new ShufflesumError("unreachable", message, false, cause);
    }
    wait *= 1 + word() / 2 ** 32; // so that a crowd does not come back all at once
    if (problem.final || Date.now() + wait > end) throw problem;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/**
 * The body, as it is once the browser has unpacked it; null where it is longer than allowed: then the rest is not read.
 * @param {Response} answer @param {number} most
 */
async function textOf(answer, most) {
  const reader = answer.body?.getReader();
  const [decoder, pieces] = [new TextDecoder(), /** @type {string[]} */ ([])];
  for (let seen = 0; reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    seen += value.length;
    if (seen > most) {
      await reader.cancel();
      return null;
    }
    pieces.push(decoder.decode(value, { stream: true }));
  }
  return pieces.join("") + decoder.decode();
}

/** A refusal; of what is no problem document of our servers only the status counts. @param {string} url @param {number} status @param {string | null} body null: too long */
function problemOf(url, status, body) {
  if (status < 400 || body === null) return new ShufflesumError("bad-answer", `${url} did not answer as our servers do (status ${status})`);
  let [name, detail, passing] = [`http-${status}`, `status ${status}`, status >= 500 || [408, 425, 429].includes(status)];
  try {
    const { type, title, detail: told = title, retry } = JSON.parse(body);
    if (type.startsWith(PREFIX)) [name, detail, passing] = [type.slice(PREFIX.length), String(told), retry === "not-yet"];
  } catch {
    // something in between answered
  }
  return new ShufflesumError(name, `${url} refused (${name}): ${detail.slice(0, 500)}`, !passing);
}
