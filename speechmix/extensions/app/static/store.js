// What was measured of the clip: each map is fetched once, and switching between maps asks nobody.

import { page } from "./clip.js";

const MOST = 24; // questions that are remembered

export class Store {
  constructor() { this.answers = new Map(); this.kept = []; }

  // What decides an answer, but for the measure.
  question({ name, seed }, units) {
    const { recording, name: clip, text, language, words } = page.clip;
    return JSON.stringify([recording ?? clip, text, language, words, name, seed, units]);
  }

  entries() { return this.kept; }

  // Maps that a run has kept, of the clip as it was opened.
  keep({ maps, models }) {
    this.kept = models;
    for (const model of models) {
      const own = maps.filter((map) => map.model === model.label);
      const measures = [...new Set(own.map((map) => map.measure.replaceAll(" ", "_")))];
      this.add(this.question(model, model.units), measures, { maps: own, refused: {}, stacks: [] });
    }
  }

  answer(question) {
    if (!this.answers.has(question)) this.answers.set(question, { maps: [], refused: {}, stacks: [], measures: new Set() });
    for (const oldest of this.answers.keys()) {
      if (this.answers.size <= MOST) break;
      this.answers.delete(oldest);
    }
    return this.answers.get(question);
  }

  add(question, measures, { maps, refused, stacks = [] }) {
    const answer = this.answer(question);
    measures.forEach((measure) => answer.measures.add(measure));
    const again = (map) => maps.some(({ measure, stack }) => measure === map.measure && stack === map.stack); // a stored clip that is opened twice
    answer.maps = [...answer.maps.filter((map) => !again(map)), ...maps];
    answer.stacks = [...new Set([...stacks, ...answer.stacks, ...answer.maps.map(({ stack }) => stack)])];
    Object.assign(answer.refused, refused);
  }

  // With no stack chosen, that which is there.
  has(question, measure, stack) {
    return Boolean(this.answers.get(question)?.refused[measure]) || this.maps(question, measure).some((map) => !stack || map.stack === stack);
  }

  stacks(question) { return this.answers.get(question)?.stacks ?? []; }

  maps(question, measure) {
    return (this.answers.get(question)?.maps ?? []).filter((map) => map.measure === measure.replaceAll("_", " "));
  }

  measures(question) { return [...(this.answers.get(question)?.measures ?? [])].filter((measure) => this.maps(question, measure).length); }

  why(question, measure) { return this.answers.get(question)?.refused[measure] ?? "nothing was measured"; }
}
