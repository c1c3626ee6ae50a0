// A crowd of simulated visitors, who take part with the module that runs in people's browsers.
// node crowd.mjs TASKS-AS-JSON HOW-MANY SECONDS

import { Task, inMemory } from "../../clients/browser/shufflesum.js";

const [given, many, seconds] = process.argv.slice(2);
const visitors = Number(many);
const AT_ONCE = 4;

// What they hold is made up, so any randomness will do; how it is hidden is the module's to draw.
const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());

const TRAVELLERS = [0.3, 0.4, 0.25, 0.4]; // of those who did not travel by any before

function made(name, task) {
  const { domain, dimension } = task.plan;
  if (name === "travel") return domain.labels[TRAVELLERS.findIndex((share) => Math.random() < share)] ?? domain.labels.at(-1);
  if (name === "day") return [7.3 + normal(), 2 + normal(), 6.5 + 1.5 * normal(), 75 + 40 * normal()];
  const shift = 0.03 * normal();
  const energy = (t) => 0.15 + 0.6 * Math.exp(-(((t - 0.42 - shift) / 0.12) ** 2)) + 0.45 * Math.exp(-(((t - 0.75 - shift) / 0.1) ** 2));
  return Array.from({ length: dimension }, (_, index) => energy(index / (dimension - 1)) + 0.05 * normal());
}

const tasks = new Map();
for (const [name, text] of Object.entries(JSON.parse(given))) {
  tasks.set(name, await Task.parse(text, { contributions: inMemory() }));
}
const began = Date.now();
let next = 0;

async function visit() {
  while (next < visitors) {
    const number = next++;
    const due = began + (1000 * Number(seconds) * number) / visitors;
    await new Promise((resume) => setTimeout(resume, due - Date.now()));
    for (const [name, task] of tasks) {
      await task.contribute(made(name, task), { user: `visitor ${number}` });
    }
  }
}

await Promise.all(Array.from({ length: AT_ONCE }, visit));
console.log(`${visitors} simulated visitors took part in ${((Date.now() - began) / 1000).toFixed(1)} s`);
