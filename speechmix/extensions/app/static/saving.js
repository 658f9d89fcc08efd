// What is saved: a page, pictures, a TextGrid, a manifest row with its sound. The server makes the file, the browser keeps it.

import { file, work } from "./api.js";
import { asked, make, page } from "./clip.js";
import { stored } from "./panel.js";

const find = (selector) => document.querySelector(selector);

export function setUpSaving(panels, failed) {
  const saving = (selector, made) => find(selector).addEventListener("click", async (event) => {
    const button = event.currentTarget;
    button.setAttribute("aria-busy", "true");
    try {
      for (const [blob, name] of await made()) download(blob, name);
    } catch (error) {
      failed(error);
    } finally {
      button.removeAttribute("aria-busy");
    }
  });
  const direct = async (form) => file("api/save", { form, clip: asked() });
  saving("#save-page", async () => [await work("page", pageAsked(panels()))]);
  saving("#save-picture", async () => Promise.all(panels().filter((panel) => panel.map).map((panel) => work("picture", pictureAsked(panel)))));
  saving("#save-textgrid", async () => [await direct("textgrid")]);
  saving("#save-row", async () => [await direct("row"), await direct("sound")]);
}

// All models that are looked at, with every measure that was looked at; the first panel's is shown first.
function pageAsked(panels) {
  const shown = panels.filter((panel) => panel.map), first = shown[0];
  const measures = [first?.measure ?? "value_zeroing", ...shown.flatMap((panel) => stored().measures(stored().question(panel.entry, panel.measuredUnits)))];
  return {
    clip: asked(), models: (shown.length ? shown : panels).map((panel) => ({ model: panel.entry.name, seed: panel.entry.seed })),
    measures: [...new Set(measures)], stack: first?.stack ?? null, layer: first ? first.map.layers[first.layer] : 0,
  };
}

function pictureAsked(panel) {
  const { name, seed } = panel.entry;
  return { clip: asked(), model: name, seed, measures: [panel.measure], stack: panel.stack, units: panel.map.units, layer: panel.map.layers[panel.layer] };
}

export function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  page.saved = { name, size: blob.size, type: blob.type };
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
