// Answers questions about the browser client, one JSON document a line on standard input, one a line on standard output.

import { createInterface } from "node:readline";

const client = new URL("../../clients/browser/", import.meta.url);
const load = (name) => import(new URL(name, client));
const { Task, inMemory } = await load("shufflesum.js");
const { canonical, fromHex } = await load("canonical.js");
const { encode, positionsOf, sizesOf } = await load("mechanisms.js");
const { Sealer } = await load("sealing.js");
const { rotatedLevels, squaresAllowed, withinBall } = await load("ball.js");
const { coordinatesOf } = await load("arrays.js");
const { codeOf, textOf } = await load("labels.js");
const { inFolder } = await load("node.js");
const draws = await load("draws.js");

const toHex = (bytes) => Buffer.from(bytes).toString("hex");
const real = { fill: crypto.getRandomValues.bind(crypto), generate: crypto.subtle.generateKey.bind(crypto.subtle) };

/** Lets the browser's randomness say what a vector has: words of 32 bits in the order they are used, and keys. */
async function scripted({ words = [], uploadId, keys = [] }, work) {
  let left = 0;
  crypto.getRandomValues = (out) => ((left = out.length), out);
  while (left === 0) draws.word();
  while (--left > 0) draws.word(); // nothing is left of words that were drawn before
  crypto.getRandomValues = (out) => {
    if (!(out instanceof Uint32Array)) return (out.set(fromHex(uploadId, 16)), out);
    // A pool is used from its end.
    const next = words.splice(0, out.length);
    out.fill(0).set(next.reverse(), out.length - next.length);
    return out;
  };
  const prefix = fromHex("302e020100300506032b656e04220420", 16);
  crypto.subtle.generateKey = async (...args) => {
    if (!keys.length) return real.generate(...args);
    const key = new Uint8Array([...prefix, ...fromHex(keys.shift(), 32)]);
    const privateKey = await crypto.subtle.importKey("pkcs8", key, "X25519", true, ["deriveBits"]);
    const { x } = await crypto.subtle.exportKey("jwk", privateKey);
    const publicKey = await crypto.subtle.importKey("jwk", { kty: "OKP", crv: "X25519", x }, "X25519", true, []);
    return { privateKey, publicKey };
  };
  try {
    return await work();
  } finally {
    crypto.getRandomValues = real.fill;
    crypto.subtle.generateKey = real.generate;
  }
}

const commands = {
  canonical: async ({ values }) => values.map((value) => canonical(value)),
  floats: async ({ values }) => values.map((value) => canonical(value, true)),
  parse: async ({ text }) => (await Task.parse(text, { contributions: inMemory() })).id,
  cells: async ({ plan, held, round = 1 }) => encode(plan, held, round),
  levels: async ({ plan: { domain, mechanism }, held, round = 1 }) => [
    ...(await rotatedLevels(domain, mechanism.tau, withinBall(domain, held), round)),
  ],
  coordinates: async ({ box, held }) => held.map((each) => [...coordinatesOf(box, each)]),
  codes: async ({ labels, held }) => held.map((each) => codeOf(labels, each)),
  texts: async ({ held }) => held.map((each) => textOf(each)),
  sizes: async ({ plan }) => sizesOf(plan),
  squares: async ({ size, tau }) => String(squaresAllowed(size, tau)),
  // How often each list of reports came up, of so many users who hold the same.
  law: async ({ plan, held, users }) => {
    const seen = {};
    for (let user = 0; user < users; user++) {
      const cells = await encode(plan, held, 1);
      const key = cells.length === 1 ? cells[0] : cells.sort((a, b) => a - b).join();
      seen[key] = (seen[key] ?? 0) + 1;
    }
    return seen;
  },
  // How often each cell was reported, place by place in the order of making: [first report, all others].
  places: async ({ plan, held, users }) => {
    const seen = [{}, {}];
    for (let user = 0; user < users; user++) {
      (await encode(plan, held, 1)).forEach((cell, place) => {
        const counts = seen[Math.min(place, 1)];
        counts[cell] = (counts[cell] ?? 0) + 1;
      });
    }
    return seen;
  },
  // Uniform numbers below a bound, in so many equal parts of it; and coins.
  below: async ({ bound, parts, draws: times }) => {
    const seen = Array(parts).fill(0);
    for (let i = 0; i < times; i++) seen[Math.floor((draws.below(bound) * parts) / bound)]++;
    return seen;
  },
  coin: async ({ chance, draws: times }) => {
    let heads = 0;
    for (let i = 0; i < times; i++) heads += draws.coin(chance);
    return [times - heads, heads];
  },
  orders: async ({ size, placed, draws: times }) => {
    const seen = {};
    for (let i = 0; i < times; i++) {
      const order = draws.shuffled([...Array(size).keys()], placed).join();
      seen[order] = (seen[order] ?? 0) + 1;
    }
    return seen;
  },
  // One user's whole upload, where all that is drawn is given.
  upload: async ({ task, held, round, script }) => {
    const sealer = await Sealer.of(fromHex(task.analyzer_key, task.analyzer_key.length / 2), fromHex(task.id, 32));
    const make = async () => toHex(await sealer.upload(await encode(task.plan, held, round), round, positionsOf(task.plan)));
    return script ? scripted(script, make) : make();
  },
  scripted_cells: async ({ plan, held, round, words }) => scripted({ words }, () => encode(plan, held, round)),
  // Contributions, one after the other, without waiting for real; and how many seconds were waited.
  contribute: async ({ url, text, options: { folder, ...options } = {}, all }) => {
    options.contributions = folder ? inFolder(folder) : inMemory();
    const task = await (url ? Task.load(url, options) : Task.parse(text, options));
    const [told, waited, now, timer] = [[], [], Date.now, setTimeout];
    let passed = 0;
    Date.now = () => now() + passed;
    globalThis.setTimeout = (work, wait, ...rest) => {
      if (!new Error().stack.includes("sending.js")) return timer(work, wait, ...rest); // the library's own
      passed += wait;
      waited.push(wait / 1000);
      return setImmediate(work);
    };
    try {
      for (const { held, ask = "contribute", ...who } of all) {
        const answer = ask === "contribute" ? task.contribute(held, who) : task[ask](who);
        told.push(await answer.catch(({ problem, final, message }) => ({ problem, final, message })));
      }
    } finally {
      [Date.now, globalThis.setTimeout] = [now, timer];
    }
    return { told, waited };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...rest } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ answer: await commands[command](rest) }));
  } catch (error) {
    console.log(JSON.stringify({ problem: error.problem ?? "thrown", message: String(error.stack) }));
  }
}
