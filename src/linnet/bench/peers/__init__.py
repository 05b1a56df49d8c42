"""Scripts that measure other engines, each run by the interpreter in which the engine is installed.

They import nothing of ours and take one argument, a JSON object: `weights`, `prompt` (ids of each
sequence), `steps` (for each token the ids of all sequences), `repeat`, `threads`, `dtype`. They
print one line `RESULT {…}` with `version`, `dtype`, `prompt`, `token`, `load`, `first`: seconds.
"""
