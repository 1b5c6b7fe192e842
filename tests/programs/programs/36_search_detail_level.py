from tool_discovery import search_tools

# Level 1: names only
tools = search_tools(query="create order", detail_level="name_only")
print("create_order" in [t["name"] for t in tools])
print(sorted(tools[0].keys()))

# Level 2: with description
details = search_tools(query="create order", detail_level="with_description", limit=3)
assert "description" in details[0]
for d in details:
    if d["name"] == "create_order":
        print(d["server"], "->", d["import"])
