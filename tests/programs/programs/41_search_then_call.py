import importlib
from toolfold import search_tools

# Discover the right tool, import it dynamically and call it
hit = [h for h in search_tools(query="average order value", detail_level="full") if h["name"] == "average_order_value"][0]
module = importlib.import_module(f"servers.{hit['server']}")
tool = getattr(module, hit["name"])
print(f"Average order value: {await tool(status='pending'):.2f}")
