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
  return during("the recording is read", async () => (await fetched(path, { method: "POST", body: blob })).json());
}

// A file that can be saved at once: [blob, name].
export async function file(path, asked) {
  const response = await fetched(path, asked ? { method: "POST", body: JSON.stringify(asked) } : {});
  const name = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get("Content-Disposition") ?? "");
  return [await response.blob(), name ? decodeURIComponent(name[1]) : "speechmix"];
}

// Where a request stands, in words.
export function standing({ state, before, note, expected }) {
  if (state !== "waiting") return (note || "at work") + (expected >= 1 ? ` (about ${duration(expected)})` : "");
  return before ? `waits its turn: ${before} before it` : "begins";
}

function duration(seconds) { return seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`; }

// Stop all requests of this page, running or waiting.
export function cancelAll() {
  return Promise.all([...waiting.keys()].map((id) => post(`api/jobs/${id}/cancel`, {}).catch(() => {})));
}

const watchers = new Set();
export function onWork(watcher) { watchers.add(watcher); }
const working = new Map();

function note(id, job) {
  if (job && job.note !== working.get(id)?.note) job.since = performance.now();
  else if (job) job.since = working.get(id).since;
  if (job) working.set(id, job);
  else working.delete(id);
  watchers.forEach((watcher) => watcher([...working.values()]));
}

// Something that takes a moment and is told meanwhile.
async function during(told, begin) {
  const id = Symbol(told);
  note(id, { state: "working", note: told });
  try { return await begin(); } finally { note(id, null); }
}

// Requests that are not over: one loop asks for all of them, for a browser has few connections to a server.
const waiting = new Map(); // id -> what is called with how it stands
const latest = new Map(); // how others stood last: an answer may overtake the request that asked
const OVER = ["done", "failed", "cancelled"];
let version = 0, watching = false; // from the first on, for a request may be over before it is said to wait

async function watch() {
  if (watching) return;
  watching = true;
  try {
    while (waiting.size) {
      const news = await get(`api/jobs?since=${version}`);
      version = news.version;
      for (const job of news.jobs) {
        latest.set(job.id, job);
        waiting.get(job.id)?.(job);
      }
      if (latest.size > 500) latest.clear();
    }
  } catch (error) {
    for (const hear of [...waiting.values()]) hear({ state: "lost", note: error.message });
  } finally {
    watching = false;
  }
}

// How a request stands from now on, until it is over.
function over(id, job, told) {
  return new Promise((done) => {
    const hear = (now) => {
      const end = OVER.includes(now.state) || now.state === "lost";
      if (end) waiting.delete(id);
      note(id, end ? null : now);
      if (end) done(now);
      else told?.(now);
    };
    waiting.set(id, hear);
    hear(latest.get(id) ?? job);
    watch();
  });
}

// Ask for work that takes a model: waits its turn, tells how far it is, returns the answer.
export async function work(kind, asked, { signal, told } = {}) {
  const taken = await post("api/jobs", { kind, ...asked }), { id } = taken.job;
  const takeBack = () => post(`api/jobs/${id}/cancel`, {}).catch(() => {});
  if (signal?.aborted) takeBack(); // while it was asked for
  signal?.addEventListener("abort", () => { if (waiting.has(id)) takeBack(); });
  const last = await over(id, taken.job, told);
  if (last.state === "lost") throw new Refused(last.note);
  if (last.state === "cancelled") throw new DOMException("taken back", "AbortError");
  const job = await get(`api/jobs/${id}`);
  if (job.state === "failed") throw new Refused(job.answer);
  return job.answer?.file ? file(`api/jobs/${id}/file`) : job.answer;
}
