"""`toolfold fold` and `unfold`: a client's servers moved into our own file, and back.

`targets` says what is written for each client, `translate` turns an entry into one of ours, `plan` and `undo` work out
the new text of every file with the editors `jsonc` and `tomltext`, `journal` writes them and remembers what was there.
"""
