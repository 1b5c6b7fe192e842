"""The process around Monty: speaks the sandbox's frames on one side and drives the interpreter on the other.

It is ours and trusted, but reads what a program made: it runs nothing, follows no link, and imports no generated code.
"""
