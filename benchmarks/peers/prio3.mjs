// What one user of Prio3, which the IETF's DAP sums with, sends and computes, beside our own client for the same question. Both in Node.
// Run it as docs/comparisons.md says: node prio3.mjs MEAN_PLAN HISTOGRAM_PLAN
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { Prio3Histogram, Prio3SumVec } from "@divviup/prio3";
import { encode } from "../../clients/browser/mechanisms.js";
import { Sealer } from "../../clients/browser/sealing.js";

const [USERS, SEAL] = [20, 48]; // what HPKE adds to each of the two servers' shares

/** Milliseconds of processor time of this process, all its threads. */
async function spent(work) {
  const before = process.cpuUsage();
  const result = await work();
  const { user, system } = process.cpuUsage(before);
  return [result, (user + system) / 1000];
}

/** All of the protocol: users shard, two servers check the proofs together and add up. Throws unless the sum is right. */
async function prio3(vdaf, held, total) {
  const verifyKey = randomBytes(vdaf.verifyKeySize);
  const [uploads, sharding] = await spent(() =>
    Promise.all(held.map(async (each) => {
      const nonce = randomBytes(vdaf.nonceSize);
      return { nonce, ...(await vdaf.shard(each, nonce, randomBytes(vdaf.randSize))) };
    })),
  );
  let between = 0;
  const [outputs, checking] = await spent(() =>
    Promise.all(uploads.map(async ({ nonce, publicShare, inputShares }) => {
      const begun = await Promise.all(inputShares.map((share, server) => vdaf.prepareInit(verifyKey, server, null, nonce, publicShare, share)));
      const shares = begun.map(({ preparationShare }) => preparationShare);
      const message = await vdaf.unshardPreparationShares(null, shares);
      between += shares.reduce((sum, share) => sum + vdaf.encodePreparationShare(share).length, vdaf.encodePreparationMessage(message).length);
      return begun.map(({ preparationState }) => vdaf.prepareNext(preparationState, message).outputShare);
    })),
  );
  const sums = [0, 1].map((server) => vdaf.aggregate(null, outputs.map((shares) => shares[server])));
  const found = vdaf.unshard(null, sums, held.length).map(Number);
  if (String(found) !== String(total)) throw new Error(`Prio3 found ${found}, not ${total}`);
  const [{ publicShare, inputShares }] = uploads;
  const sent = inputShares.reduce((sum, share) => sum + SEAL + vdaf.encodeInputShare(share).length, vdaf.encodePublicShare(publicShare).length);
  return { sent, client: sharding / held.length, servers: checking / held.length, between: between / held.length };
}

/** Our client up to the bytes that it would send. */
async function ours(path, held) {
  const plan = JSON.parse(readFileSync(path, "utf8"));
  const { publicKey } = await crypto.subtle.generateKey({ name: "X25519" }, true, ["deriveBits"]);
  const sealer = await Sealer.of(new Uint8Array(await crypto.subtle.exportKey("raw", publicKey)), new Uint8Array(32));
  await sealer.upload(await encode(plan, held[0], 1), 1); // compiled before it is measured, as the other was by its first users
  const [uploads, client] = await spent(async () => {
    const made = [];
    for (const each of held) made.push(await sealer.upload(await encode(plan, each, 1), 1));
    return made;
  });
  return { sent: uploads[0].length, client: client / held.length };
}

const below = (bound) => Math.floor(Math.random() * bound); // made-up data
const columns = (rows) => rows[0].map((_, j) => rows.reduce((sum, row) => sum + row[j], 0));
const traces = Array.from({ length: USERS }, () => Array.from({ length: 100 }, () => below(256)));
const answers = Array.from({ length: USERS }, () => below(10));
const counts = Array.from({ length: 10 }, (_, label) => answers.filter((each) => each === label).length);
const [meanPlan, histogramPlan] = process.argv.slice(2);

// chunks near the root of the number of bits make the smallest proofs
const sums = new Prio3SumVec({ shares: 2, length: 100, bits: 8, chunkLength: 28 });
const histogram = new Prio3Histogram({ shares: 2, length: 10, chunkLength: 3 });
await prio3(sums, traces, columns(traces)); // compiled before it is measured
await prio3(histogram, answers, counts);
const found = {
  "100 numbers, Prio3SumVec of 8 bits": await prio3(sums, traces, columns(traces)),
  "100 numbers, ours": await ours(meanPlan, traces.map((trace) => trace.map((value) => value / 255))),
  "10 labels, Prio3Histogram": await prio3(histogram, answers, counts),
  "10 labels, ours": await ours(histogramPlan, answers),
};
for (const [name, { sent, client, servers, between }] of Object.entries(found)) {
  const server = servers === undefined ? "" : `, servers ${servers.toFixed(1)} ms and ${Math.round(between)} bytes between them`;
  console.log(`${name}: sends ${sent} bytes, client ${client.toFixed(1)} ms${server}`);
}
