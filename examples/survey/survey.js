// The survey: three questions, each a collection of its own with its own task. Answers stay here until they are
// randomized and sealed; the page's owner must neither log nor send them.

import { Task } from "./client/shufflesum.min.js";
import { drawable } from "./curve.js";

const form = document.getElementById("survey");
const status = document.getElementById("status");
const button = form.querySelector("button");

function say(text, kind = "") {
  status.textContent = text;
  status.className = kind && `note ${kind}`;
}

function radio(label) {
  const [line, input] = [document.createElement("label"), document.createElement("input")];
  line.className = "choice";
  Object.assign(input, { type: "radio", name: "travel", value: label, required: true });
  line.append(input, ` ${label}`);
  return line;
}

function slider(name, low, high) {
  const [line, label, input, shown] = ["p", "label", "input", "output"].map((kind) => document.createElement(kind));
  line.className = "range";
  label.textContent = name;
  label.htmlFor = input.id = `day ${name}`;
  Object.assign(input, { type: "range", min: low, max: high, step: high - low > 50 ? 1 : 0.1, value: (low + high) / 2 });
  const show = () => (shown.textContent = String(Math.round(10 * input.valueAsNumber) / 10));
  input.addEventListener("input", show);
  show();
  line.append(label, input, shown);
  return { line, value: () => input.valueAsNumber };
}

/** A task's question with what it needs to be answered: the page shows what the task itself asks for. */
function ask(tasks) {
  const { travel, day, curve } = tasks;
  document.getElementById("travel").append(...travel.plan.domain.labels.map(radio));
  const { columns, bounds } = day.plan.domain;
  const sliders = columns.map((name, place) => slider(name, bounds[0][place], bounds[1][place]));
  document.getElementById("day").append(...sliders.map(({ line }) => line));
  const drawn = drawable(document.getElementById("curve"), curve.plan.dimension);
  return () => ({
    travel: new FormData(form).get("travel"),
    day: sliders.map(({ value }) => value()),
    curve: drawn(),
  });
}

async function main() {
  const { tasks: addresses, analysts } = await (await fetch("tasks.json")).json();
  for (const [name, address] of Object.entries(analysts)) {
    const [line, link] = [document.createElement("li"), document.createElement("a")];
    Object.assign(link, { href: address, textContent: name, target: "_blank", rel: "noopener noreferrer" });
    line.append(link);
    document.getElementById("analysts").append(line);
  }
  const tasks = {};
  for (const [name, address] of Object.entries(addresses)) tasks[name] = await Task.load(address);
  const answers = ask(tasks);
  const send = async (how) => {
    button.disabled = true;
    try {
      for (const [name, task] of Object.entries(tasks)) {
        say(`Randomizing and sealing: ${task.name} …`);
        await how(name, task);
      }
      say("Thank you: your part is in. See what the analysts see, below.", "good");
    } catch (error) {
      button.disabled = error.problem === "duplicate-contribution";
      if (error.problem === "duplicate-contribution") say("You have taken part already; thank you.", "good");
      else say(`Not sent: ${error.message}`, "bad");
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = answers();
    void send(async (name, task) => {
      if ((await task.state()) === "none") await task.contribute(given[name]);
      else await task.resume();
    });
  });
  const states = await Promise.all(Object.values(tasks).map((task) => task.state()));
  if (states.includes("pending")) await send(async (_, task) => task.resume()); // a page that was left too early
  else if (states.every((state) => state === "duplicate-contribution")) {
    button.disabled = true;
    say("You have taken part already; thank you.", "good");
  }
}

main().catch((error) => say(`The survey cannot be loaded: ${error.message}`, "bad"));
