// Recording from the microphone as plain samples (a WAV file), because what MediaRecorder writes cannot be read everywhere.

export function canRecord() { return Boolean(navigator.mediaDevices?.getUserMedia && window.AudioWorkletNode); }

export class Recorder {
  // `told` gets seconds and loudness (0 to 1) as they come; `full` is called when `longest` seconds are over.
  constructor({ longest, told, full }) { Object.assign(this, { longest, told, full, blocks: [], count: 0 }); }

  async start() {
    const constraints = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    this.stream = await navigator.mediaDevices.getUserMedia({ audio: constraints });
    try {
      this.context = new AudioContext();
      await this.context.audioWorklet.addModule("static/recorder_worklet.js");
      this.node = new AudioWorkletNode(this.context, "speechmix-recorder", { numberOfOutputs: 0 });
      this.node.port.onmessage = ({ data }) => this.take(data);
      this.context.createMediaStreamSource(this.stream).connect(this.node);
    } catch (error) {
      this.silence(); // else it hears on, and nobody can stop it
      throw error;
    }
  }

  silence() { this.stream.getTracks().forEach((track) => track.stop()); }

  take(block) {
    if (this.over) return;
    this.blocks.push(block);
    this.count += block.length;
    const seconds = this.count / this.context.sampleRate;
    this.told(seconds, Math.sqrt(block.reduce((sum, sample) => sum + sample * sample, 0) / block.length));
    if (seconds >= this.longest - 0.1) this.full();
  }

  // End, and return what was recorded as a WAV file; null if that is nothing.
  async stop() {
    this.over = true;
    this.node.port.onmessage = null;
    this.silence();
    const rate = this.context.sampleRate;
    await this.context.close();
    return this.count ? wav(this.blocks, this.count, rate) : null;
  }
}

// A WAV file of 16 bits, one channel.
export function wav(blocks, count, rate) {
  const bytes = new DataView(new ArrayBuffer(44 + 2 * count));
  const write = (place, text) => [...text].forEach((letter, i) => bytes.setUint8(place + i, letter.charCodeAt(0)));
  write(0, "RIFF");
  bytes.setUint32(4, 36 + 2 * count, true);
  write(8, "WAVEfmt ");
  bytes.setUint32(16, 16, true);
  bytes.setUint16(20, 1, true);
  bytes.setUint16(22, 1, true);
  bytes.setUint32(24, rate, true);
  bytes.setUint32(28, 2 * rate, true);
  bytes.setUint16(32, 2, true);
  bytes.setUint16(34, 16, true);
  write(36, "data");
  bytes.setUint32(40, 2 * count, true);
  let place = 44;
  for (const block of blocks) {
    for (const sample of block) {
      bytes.setInt16(place, Math.round(32767 * Math.min(Math.max(sample, -1), 1)), true);
      place += 2;
    }
  }
  return new Blob([bytes], { type: "audio/wav" });
}

// A file that the server cannot read, decoded by the browser (m4a, webm, ...).
export async function decoded(blob) {
  const context = new OfflineAudioContext(1, 1, 48000);
  const buffer = await context.decodeAudioData(await blob.arrayBuffer());
  const mono = new Float32Array(buffer.length);
  for (let channel = 0; channel < buffer.numberOfChannels; channel++) {
    buffer.getChannelData(channel).forEach((sample, i) => { mono[i] += sample / buffer.numberOfChannels; });
  }
  return wav([mono], mono.length, buffer.sampleRate);
}
