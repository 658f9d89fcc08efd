// Requests to the server that this page came from. The token is in the page's own address, so all paths are relative.

export class Refused extends Error {}

async function answered(response) {
  if (response.ok) return response;
  let reason = `the server answered ${response.status}`;
  try { reason = (await response.json()).error ?? reason; } catch { /* no JSON: the status says it */ }
  throw new Refused(reason);
}

async function fetched(path, options) {
  try {
    return await answered(await fetch(path, options));
  } catch (error) {
    if (error instanceof Refused || error.name === "AbortError") throw error;
    throw new Refused("the server does not answer: is `speechmix serve` still running?");
  }
}

export async function get(path) { return (await fetched(path)).json(); }

export async function post(path, asked) {
  return (await fetched(path, { method: "POST", body: JSON.stringify(asked) })).json();
}

export async function sendSound(blob, name) {
  const path = `api/recordings?name=${encodeURIComponent(name.slice(0, 300))}`;
  return (await fetched(path, { method: "POST", body: blob })).json();
}

// A file that can be saved at once: [blob, name].
export async function file(path, asked) {
  const response = await fetched(path, asked ? { method: "POST", body: JSON.stringify(asked) } : {});
  const name = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get("Content-Disposition") ?? "");
  return [await response.blob(), name ? decodeURIComponent(name[1]) : "speechmix"];
}

// Where a request stands, in words.
export function standing({ state, before, note }) {
  if (state !== "waiting") return note || "at work";
  return before ? `waits its turn: ${before} before it` : "begins";
}

const watchers = new Set();
export function onWork(watcher) { watchers.add(watcher); }
const working = new Map();

// Ask for work that takes a model: waits its turn, tells how far it is, returns the answer.
export async function work(kind, asked, { signal, told } = {}) {
  let job = await post("api/jobs", { kind, ...asked });
  signal?.addEventListener("abort", () => { post(`api/jobs/${job.id}/cancel`, {}).catch(() => {}); });
  try {
    while (!["done", "failed", "cancelled"].includes(job.state)) {
      working.set(job.id, job);
      watchers.forEach((watcher) => watcher([...working.values()]));
      told?.(job);
      job = await get(`api/jobs/${job.id}?seen=${job.seen}`);
    }
  } finally {
    working.delete(job.id);
    watchers.forEach((watcher) => watcher([...working.values()]));
  }
  if (job.state === "failed") throw new Refused(job.answer);
  if (job.state === "cancelled") throw new DOMException("taken back", "AbortError");
  return job.answer?.file ? file(`api/jobs/${job.id}/file`) : job.answer;
}
