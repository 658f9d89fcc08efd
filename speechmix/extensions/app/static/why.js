// Why did the model write its words? The view of an explanation, as on a page of its own; the sound is this page's.

import { standing, work } from "./api.js";
import { asked, on, page } from "./clip.js";
import { download } from "./saving.js";

const find = (selector) => document.querySelector(selector);
let stop = null;

export function setUpWhy(modelOf, failed) {
  const named = () => { find("#why-model").textContent = modelOf(); };
  const forget = () => {
    stop?.abort();
    stop = null;
    named();
    find("#why").hidden = !page.clip?.recording;
    find("#why-view").hidden = true;
    find("#why-view").replaceChildren();
    find("#why-note").textContent = "";
  };
  for (const event of ["clip", "words"]) on(event, forget);
  find("#explain").addEventListener("click", () => explain(modelOf(), failed));
  return { named, forget };
}

async function explain(model, failed) {
  stop?.abort();
  const own = (stop = new AbortController()), question = { clip: asked(), model };
  const note = (text) => { if (own === stop) find("#why-note").textContent = text; };
  note("asked for …");
  try {
    const data = await work("explain", question, { signal: own.signal, told: (job) => note(standing(job)) });
    if (own !== stop) return;
    find("#why-view").hidden = false;
    explanationView(find("#why-view"), data, {
      play: (from, to) => page.player.play(from, to),
      file: async () => {
        try { download(...(await work("explanation", question))); } catch (error) { failed(error); }
      },
    });
    note("");
  } catch (error) {
    if (error.name !== "AbortError") note(error.message);
  }
}
