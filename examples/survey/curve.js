// A box to draw a curve in, with a pointer or with the arrow keys.

/** Makes a canvas drawable; the function that comes back tells its values, from 0 to 1. */
export function drawable(canvas, size) {
  const values = new Array(size).fill(0.5);
  const context = canvas.getContext("2d");
  let place = 0;
  let last = null;

  const hour = (index) => Math.round((24 * index) / (size - 1));
  const x = (index) => (canvas.width * index) / (size - 1);
  const y = (value) => canvas.height * (1 - value);

  function paint() {
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.strokeStyle = "#d3d7de";
    context.fillStyle = "#565c66";
    context.font = "14px sans-serif";
    for (const part of [0.25, 0.5, 0.75]) {
      context.beginPath();
      context.moveTo(canvas.width * part, 0);
      context.lineTo(canvas.width * part, canvas.height);
      context.stroke();
      context.fillText(`${24 * part}:00`, canvas.width * part + 4, canvas.height - 6);
    }
    context.strokeStyle = "#0b5cad";
    context.lineWidth = 4;
    context.beginPath();
    values.forEach((value, index) => context.lineTo(x(index), y(value)));
    context.stroke();
    context.lineWidth = 1;
    context.fillStyle = "#b3261e";
    context.beginPath();
    context.arc(x(place), y(values[place]), 6, 0, 7);
    context.fill();
    canvas.setAttribute("aria-valuenow", String(Math.round(100 * values[place])));
    canvas.setAttribute("aria-valuetext", `${hour(place)}:00, ${Math.round(100 * values[place])} percent`);
  }

  function draw(event) {
    const box = canvas.getBoundingClientRect();
    const clip = (value) => Math.min(1, Math.max(0, value));
    const index = Math.round(clip((event.clientX - box.left) / box.width) * (size - 1));
    const value = clip(1 - (event.clientY - box.top) / box.height);
    const from = last ?? { index, value };
    const steps = Math.max(1, Math.abs(index - from.index));
    for (let step = 0; step <= steps; step++) {
      const part = step / steps;
      values[Math.round(from.index + (index - from.index) * part)] = from.value + (value - from.value) * part;
    }
    last = { index, value };
    place = index;
    paint();
  }

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = null;
    draw(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons !== 0) draw(event);
  });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 0.05], ArrowDown: [0, -0.05] };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    place = Math.min(size - 1, Math.max(0, place + move[0]));
    values[place] = Math.min(1, Math.max(0, values[place] + move[1]));
    paint();
  });
  paint();
  return () => [...values];
}
