"""What a question is made of: audio, frames, words, clips, sentences, and the files that users keep
them in."""
