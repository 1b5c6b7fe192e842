from tool_discovery import search_tools

tool = search_tools(query="create_order", detail_level="full", server="shop")[0]
print(tool["name"])
print("parameters:", list(tool["input_schema"]["properties"]))
print("required:", tool["input_schema"]["required"])
print("create_order(" in tool["signature"])
print("output_schema" in tool, "output_schema" in search_tools("create_order", detail="name_only")[0])
