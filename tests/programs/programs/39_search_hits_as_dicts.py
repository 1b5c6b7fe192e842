import json
from tool_discovery import search_tools

tools = search_tools(query="contact", detail_level="with_description", server="crm-tools", limit=3)

as_dicts = [dict(t) for t in tools]
print(sorted(as_dicts[0]))
print({t["server"] for t in as_dicts})
text = json.dumps(tools, indent=2)
print(len(json.loads(text)) == len(tools) > 0)
print(tools[0].get("no_such_key", "n/a"))
