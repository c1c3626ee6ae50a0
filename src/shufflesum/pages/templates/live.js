// Asks for this page again while it says so (data-again: after how many seconds), and puts in what has changed.
// Without it the page can be read as well.
const MOST_SECONDS = 300;
let slower = 1;

async function refresh() {
  const answer = await fetch(location.href, { cache: "no-cache", credentials: "same-origin" });
  if (!answer.ok) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const now = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (now === null || now.isEqualNode(part)) continue;
    const open = new Set([...part.querySelectorAll("details[open]")].map((one) => one.textContent));
    for (const one of now.querySelectorAll("details")) one.open = open.has(one.textContent);
    const focused = part.contains(document.activeElement) ? document.activeElement.outerHTML : null;
    part.replaceWith(document.adoptNode(now));
    if (focused !== null) {
      const same = [...now.querySelectorAll("*")].find((one) => one.outerHTML === focused);
      same?.focus({ preventScroll: true });
    }
    const news = document.getElementById("news");
    if (news !== null && part.dataset.live === "rounds") news.textContent = "The estimates have just been updated.";
  }
}

async function again() {
  try {
    if (!document.hidden) await refresh();
    slower = 1;
  } catch {
    slower *= 2; // the server is away: ask less often
  }
  wait();
}

function wait() {
  const part = document.querySelector("[data-again]");
  if (part !== null) setTimeout(again, 1000 * Math.min(slower * Number(part.dataset.again), MOST_SECONDS));
}

wait();
