// Asking a server until it has answered for good: what it tells not yet is asked again, what it tells never is not.

import { word } from "./draws.js";
import { ShufflesumError } from "./errors.js";

const PREFIX = "urn:shufflesum:problem:";
const [FIRST_PAUSE, LONGEST_PAUSE, LONGEST_WAIT, ONE_REQUEST] = [100, 10_000, 60_000, 30_000]; // milliseconds

/**
 * The answer with status `yes`; throws the refusal that is final, or the last one when `timeout` milliseconds are over.
 * @param {string} url @param {number} yes @param {number} timeout @param {RequestInit} [request]
 */
export async function askUntil(url, yes, timeout, request) {
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
      if (answer.status === yes) return answer;
      problem = problemOf(url, answer.status, await answer.text());
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

/** A refusal; of what is no problem document of our servers only the status counts. @param {string} url @param {number} status @param {string} body */
function problemOf(url, status, body) {
  if (status < 400) return new ShufflesumError("bad-answer", `${url} did not answer as our servers do (status ${status})`);
  let [name, detail, passing] = [`http-${status}`, `status ${status}`, status >= 500 || [408, 425, 429].includes(status)];
  try {
    const { type, title, detail: told = title, retry } = JSON.parse(body);
    if (type.startsWith(PREFIX)) [name, detail, passing] = [type.slice(PREFIX.length), String(told), retry === "not-yet"];
  } catch {
    // something in between answered
  }
  return new ShufflesumError(name, `${url} refused (${name}): ${detail.slice(0, 500)}`, !passing);
}
