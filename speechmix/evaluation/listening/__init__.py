"""Does an audio language model use the sound, or does it guess from the text?"""
