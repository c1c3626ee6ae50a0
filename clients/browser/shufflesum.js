/**
 * Take part in a private collection from a web page, or from Node: what a user holds is randomized and sealed here, and
 * sent to the task's shuffler, once in a round. See README.md and docs/browser.md.
 */

import { fromHex, idOf } from "./canonical.js";
import { inBrowser, inMemory } from "./contributions.js";
import { ShufflesumError, refuse, shown } from "./errors.js";
import { encode, positionsOf, sizesOf } from "./mechanisms.js";
import { Sealer, WIRE_VERSION } from "./sealing.js";
import { askUntil } from "./sending.js";

export { ShufflesumError, inMemory };

/** @import {Contributions, Options, Receipt, TaskFile, Who} from "./types.d.ts" */

const MOST_TASK_BYTES = 1 << 26; // its labels may be many
const FIELDS = "analyzer_key,expires,format,id,name,plan,rounds,shuffler,smallest_batch,wire_version";

/**
 * A collection to take part in. Its id is checked over all it says; the privacy that its plan claims is not computed
 * here, but by the servers, which refuse a false claim, and by `shufflesum task show` for anybody who asks.
 */
export class Task {
  #sealer;
  #contributions;
  #timeout;

  /** @param {TaskFile} file @param {Sealer} sealer @param {Contributions} contributions @param {number} timeout */
  constructor(file, sealer, contributions, timeout) {
    this.#sealer = sealer;
    this.#contributions = contributions;
    this.#timeout = timeout;
    /** The task file as it was loaded. */
    this.file = file;
  }

  /**
   * From the address of a task file, or of a task at its shuffler: https://shuffler.example.org/tasks/ID. With `id`, or
   * where the address ends in one, it must be that very task.
   * @param {string | URL} url @param {Options} [options]
   */
  static async load(url, options = {}) {
    const address = new URL(url, globalThis.document?.baseURI).href;
    const text = await askUntil(address, 200, 1000 * (options.timeout ?? 60), { redirect: "follow" }, MOST_TASK_BYTES);
    return Task.parse(text, { id: /\/tasks\/([0-9a-f]{64})\/?$/.exec(address)?.[1], ...options });
  }

  /** From the text of a task file. @param {string} text @param {Options} [options] */
  static async parse(text, { id, contributions, timeout = 60, allowPlainHttp = false } = {}) {
    let file;
    try {
      file = JSON.parse(text);
    } catch (cause) {
      refuse("malformed", "not a task: no JSON", cause);
    }
    const sealer = await checked(file, allowPlainHttp);
    if (id !== undefined && id !== file.id) refuse("task-mismatch", `this is task ${file.id}, but ${shown(id)} is expected`);
    const kept = contributions ?? (globalThis.indexedDB ? inBrowser() : (await import("./node.js")).inFolder());
    return new Task(file, sealer, kept, 1000 * timeout);
  }

  get id() {
    return this.file.id;
  }

  /** As whoever made the task wrote it: show it as text (textContent), never as markup. */
  get name() {
    return this.file.name;
  }

  /** Domain (with labels and bounds), mechanism and guarantee. */
  get plan() {
    return this.file.plan;
  }

  /** Whether nobody sends or accepts under it any more. */
  get expired() {
    return Date.now() >= Date.parse(this.file.expires);
  }

  /** The round that is open, asked of the shuffler where the task has several. */
  async openRound() {
    if (this.file.rounds === 1) return 1;
    const text = await askUntil(`${this.#address}/round`, 200, this.#timeout);
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      // something in between answered: no round, which is refused as such
    }
    const { open_round: found } = answer ?? {};
    if (found === null) refuse("round-closed", `all ${this.file.rounds} rounds of task ${shown(this.name)} are closed`);
    return /** @type {number} */ (found);
  }

  /**
   * Randomize what the user holds, seal it, keep it and send it; resolves once the shuffler has it for good.
   *
   * That is an array of numbers, or what else the task asks for: a label, a list of labels, {label, values}, a word, or
   * an update. Numbers are moved to the nearest bound; a label that has no place in the plan is refused, and nothing is
   * sent. Refused as `duplicate-contribution` if this user has contributed to the round. Where an earlier attempt was not
   * acknowledged, its bytes are sent again, whatever `held` says now.
   * @param {unknown} held @param {Who} [who] @returns {Promise<Receipt>}
   */
  async contribute(held, who = {}) {
    if (who.token !== undefined && !/^[!-~]+$/.test(who.token)) refuse("malformed", `the token ${shown(who.token)} is none`);
    const { round, key, kept } = await this.#found(who);
    const expires = Date.parse(this.file.expires);
    const { upload } =
      kept ?? (await this.#contributions.claim(key, { expires, upload: await this.#made(held, round) }));
    if (!upload) refuse("duplicate-contribution", `this user has contributed to round ${round} of task ${shown(this.name)} already: each counts once`);
    const headers = { "Content-Type": "application/octet-stream", ...(who.token && { Authorization: `Token ${who.token}` }) };
    /** @type {Receipt["contribution"]} */
    let contribution = "accepted";
    try {
      await askUntil(`${this.#address}/uploads`, 201, this.#timeout, { method: "POST", headers, body: upload });
    } catch (error) {
      if (!(error instanceof ShufflesumError) || error.problem !== "repeated") throw error;
      contribution = "repeated"; // it had arrived, and only the answer was lost
    }
    await this.#contributions.acknowledge(key, { expires, upload });
    return { round, contribution };
  }

  /** @param {unknown} held @param {number} round */
  async #made(held, round) {
    return this.#sealer.upload(await encode(this.plan, held, round), round, positionsOf(this.plan));
  }

  /** Send again what was made and not acknowledged, as after a reload; null where there is nothing. @param {Who} [who] @returns {Promise<Receipt | null>} */
  async resume(who = {}) {
    const { round, kept } = await this.#found(who);
    return kept?.upload ? this.contribute(undefined, { ...who, round }) : null;
  }

  /** How far this user is in a round. @param {Who} [who] @returns {Promise<"none" | "pending" | "duplicate-contribution">} */
  async state(who = {}) {
    const { kept } = await this.#found(who);
    return !kept ? "none" : kept.upload ? "pending" : "duplicate-contribution";
  }

  get #address() {
    return `${this.file.shuffler.replace(/\/+$/, "")}/tasks/${this.id}`;
  }

  /** @param {Who} who */
  async #found({ round, user = "me" }) {
    if (this.expired) refuse("expired", `task ${shown(this.name)} expired at ${this.file.expires}; ask for a new one`);
    const number = round ?? (await this.openRound());
    if (!(Number.isInteger(number) && number >= 1 && number <= this.file.rounds)) {
      refuse("wrong-round", `round ${shown(number)}; this task covers rounds 1 to ${this.file.rounds}`);
    }
    const key = `${this.id} ${number} ${user}`;
    return { round: number, key, kept: await this.#contributions.find(key) };
  }
}

/** Refuses a task that says anything but what its ids stand for. @param {any} file @param {boolean} allowPlainHttp */
async function checked(file, allowPlainHttp) {
  if (file?.format !== "shufflesum-task-2") refuse("format-mismatch", `not a task: its format is ${shown(file?.format)}`);
  if (String(Object.keys(file).sort()) !== FIELDS) refuse("malformed", `not a task: it has the fields ${Object.keys(file)}`);
  if (file.wire_version !== WIRE_VERSION) refuse("wrong-version", `wire version ${shown(file.wire_version)} is not known`);
  if (!/^\d{4}(-\d\d){2}T\d\d(:\d\d){2}Z$/.test(file.expires) || Number.isNaN(Date.parse(file.expires))) {
    refuse("wrong-type", `time ${shown(file.expires)} is not understood`);
  }
  const { format, domain, mechanism, guarantee, id, dimension, cells, reports } = file.plan ?? {};
  if (format !== "shufflesum-plan-2") refuse("format-mismatch", `not a plan: its format is ${shown(format)}`);
  if (guarantee?.accountant === "none" || guarantee?.epsilon === null) refuse("no-guarantee", "this plan guarantees nothing");
  const keys = file.analyzer_key?.length === 64 ? 1 : file.rounds; // one for all rounds, or one for each
  const sealer = await Sealer.of(fromHex(file.analyzer_key, 32 * keys), fromHex(file.id, 32));
  const sizes = sizesOf(file.plan);
  const { id: stated, ...content } = file;
  const agree =
    id === (await idOf({ format, domain, mechanism, guarantee })) &&
    stated === (await idOf({ ...content, plan: id })) &&
    file.smallest_batch === (positionsOf(file.plan) ? 1 : guarantee.users) && // no crowd is needed where servers draw the noise
    (keys === file.rounds || !positionsOf(file.plan)) && // and each round has a key of its own
    file.rounds === guarantee.rounds &&
    sizes.reports === reports &&
    sizes.cells === cells &&
    sizes.dimension === dimension;
  if (!agree) refuse("changed-afterwards", "this task was changed after it was made: what it says does not fit its id");
  const { protocol, hostname } = new URL(file.shuffler);
  const loopback = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
  if (protocol !== "https:" && !(protocol === "http:" && (loopback || allowPlainHttp))) {
    refuse("untrusted", `${shown(file.shuffler)} is not https: whoever is in between can read and change what is sent`);
  }
  return sealer;
}
