// Runs beside the sound: passes on what the microphone hears, block by block.

class Recorder extends AudioWorkletProcessor {
  process([input]) {
    if (input.length) this.port.postMessage(input[0].slice());
    return true;
  }
}

registerProcessor("speechmix-recorder", Recorder);
