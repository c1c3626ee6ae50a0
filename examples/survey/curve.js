// A box to draw a curve in, with a pointer or with the arrow keys.

const STEP = 0.05; // of a press of a key
const HOURS = [0, 6, 12, 18, 24];

/** Makes a canvas drawable; the function that comes back tells its values, from 0 to 1. */
export function drawable(canvas, size) {
  const values = new Array(size).fill(0.5);
  const context = canvas.getContext("2d");
  let place = 0;
  let last = null;

  const clip = (value) => Math.min(1, Math.max(0, value));
  const time = (index) => {
    const minutes = Math.round((24 * 60 * index) / (size - 1));
    return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}`;
  };

  function paint() {
    const { clientWidth: width, clientHeight: height } = canvas;
    const [x, y] = [(index) => (width * index) / (size - 1), (value) => height * (1 - value)];
    // As sharp as the screen, in the colours of the page, light or dark.
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
    context.scale(devicePixelRatio, devicePixelRatio);
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name);
    context.strokeStyle = colour("--line");
    context.fillStyle = colour("--quiet");
    context.font = `13px ${style.fontFamily}`;
    for (const hour of width < 420 ? HOURS.slice(0, -1) : HOURS) {
      const at = (width * hour) / 24;
      context.beginPath();
      context.moveTo(at, 0);
      context.lineTo(at, height);
      context.stroke();
      context.textAlign = hour === 24 ? "right" : "left";
      context.fillText(`${hour}:00`, at + (hour === 24 ? -5 : 5), height - 7);
    }
    context.textAlign = "left";
    context.fillText("full of energy", 5, 17);
    context.fillText("tired", 5, height - 25);
    context.strokeStyle = colour("--link");
    context.lineWidth = 3;
    context.beginPath();
    values.forEach((value, index) => context.lineTo(x(index), y(value)));
    context.stroke();
    context.fillStyle = colour("--bad-line");
    context.beginPath();
    context.arc(x(place), y(values[place]), 6, 0, 2 * Math.PI);
    context.fill();
    canvas.setAttribute("aria-valuenow", String(Math.round(100 * values[place])));
    canvas.setAttribute("aria-valuetext", `${time(place)}, ${Math.round(100 * values[place])} percent`);
  }

  function draw(event) {
    const box = canvas.getBoundingClientRect();
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
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    place = Math.min(size - 1, Math.max(0, place + move[0]));
    values[place] = clip(values[place] + move[1]);
    paint();
  });
  new ResizeObserver(paint).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();
  return () => [...values];
}
