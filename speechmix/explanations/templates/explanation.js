"use strict";
// Hovering chooses a word, a part of the sound is played when it is clicked. Without this script, clicking chooses.
for (const form of document.querySelectorAll("form.why:not([data-ready])")) {
  form.dataset.ready = "";
  const audio = form.querySelector("audio");
  let until = null;
  form.addEventListener("mouseover", (event) => {
    const label = event.target.closest("label");
    if (label && !form.querySelector("label :focus-visible")) label.querySelector("input").checked = true;
  });
  form.addEventListener("click", (event) => {
    const part = event.target.closest("button[data-from]");
    if (!part) return;
    event.preventDefault();
    if (!audio) return;
    audio.currentTime = Number(part.dataset.from);
    until = Number(part.dataset.to);
    audio.play();
  });
  if (audio) {
    const follow = () => {
      if (until !== null && audio.currentTime >= until) { until = null; audio.pause(); }
      if (!audio.paused) requestAnimationFrame(follow);
    };
    audio.addEventListener("play", follow);
  }
}
