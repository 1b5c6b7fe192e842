"""Seven small MCP servers with made-up data, each a process of its own: `python -m toolfold.demo serve NAME`.

The data is drawn from fixed seeds, so every run of every server tells the same story. What a program
changes lives as long as the process.
"""
