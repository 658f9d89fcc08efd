"""The app in the browser (`speechmix serve`): one clip at a time, measured while you look.

In: models by name, perhaps a run's folder. Out: a page that only this computer can open, and files
that the user saves. `measurements`, `clip_changes`, `downloads` and `run_browser` are functions of
clips and models that do not depend on the page. `request_queue` runs one request at a time,
`session` stores recordings and models, `routes` maps addresses to functions, `server` is the HTTP
server.
"""
