// The sound and where it is: one recording, played from a time to another, and the time that is heard now.

export class Player {
  constructor() {
    this.buffer = null;
    this.place = 0; // seconds, where it stopped
    this.playing = null; // {source, from, until, started}
    this.moved = new Set(); // told at each picture while it plays, and once when it stops
    this.step = this.step.bind(this);
  }

  get context() {
    this.made ??= new AudioContext({ latencyHint: "interactive" });
    return this.made;
  }

  get seconds() { return this.buffer?.duration ?? 0; }

  async load(path) {
    this.stop();
    this.buffer = null;
    this.place = 0;
    const response = await fetch(path);
    if (!response.ok) throw new Error("the sound is not there");
    const buffer = await this.context.decodeAudioData(await response.arrayBuffer());
    this.buffer = buffer;
    this.tell();
  }

  forget() { this.stop(); this.buffer = null; this.place = 0; this.tell(); }

  async play(from = 0, until = this.seconds) {
    if (!this.buffer) return;
    this.stop();
    const token = (this.token = {});
    await this.context.resume();
    if (this.token !== token) return; // asked for something else meanwhile
    const source = this.context.createBufferSource();
    source.buffer = this.buffer;
    source.connect(this.output ?? this.context.destination);
    const started = this.context.currentTime + 0.02;
    const [begin, end] = [Math.max(0, from), Math.min(until, this.seconds)];
    source.start(started, begin, Math.max(end - begin, 0.001));
    this.playing = { source, from: begin, until: end, started };
    this.step();
  }

  stop() {
    this.token = null;
    if (!this.playing) return;
    const { source } = this.playing;
    this.place = this.now;
    this.playing = null;
    try { source.stop(); } catch { /* it had ended */ }
    this.tell();
  }

  toggle() {
    if (this.playing) this.stop();
    else this.play(this.place < this.seconds - 0.02 ? this.place : 0);
  }

  // What leaves the loudspeaker now, on the clock of the context.
  get heard() {
    const rendered = this.context.currentTime - (this.context.outputLatency || 0);
    const stamp = this.context.getOutputTimestamp?.();
    if (!stamp?.performanceTime) return rendered;
    const heard = stamp.contextTime + (performance.now() - stamp.performanceTime) / 1000;
    return Math.abs(heard - rendered) < 0.1 ? heard : rendered; // some browsers' stamps stand still
  }

  get now() {
    if (!this.playing) return this.place;
    const { from, until, started } = this.playing;
    return Math.min(Math.max(from + this.heard - started, from), until);
  }

  step() {
    if (!this.playing) return;
    if (this.now >= this.playing.until) {
      const { until } = this.playing;
      this.playing = null;
      this.place = until >= this.seconds - 0.02 ? 0 : until;
      this.tell();
      return;
    }
    this.tell();
    requestAnimationFrame(this.step);
  }

  tell() { this.moved.forEach((listener) => listener(this)); }
}
