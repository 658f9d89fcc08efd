"""The app in the browser: one clip after the other, measured while one looks (`speechmix serve`).

In: models by name, perhaps a run's folder. Out: a page on this computer alone, and what is saved
from it. What it answers (`answers`, `saving`, `runs`) are functions of clips and models that know
nothing of the page; `turns` lets one request work at a time, `session` remembers recordings and
models, `routes` are the addresses, `server` guards the door.
"""
