import os

# Explore the available servers and tools
servers = [d for d in sorted(os.listdir("servers")) if os.path.isdir(f"servers/{d}") and not d.startswith("_")]
print(servers)

tools = [f for f in sorted(os.listdir("./servers/shop")) if f.endswith(".py") and "order" in f]
print(tools)

# Read only the definition that I need
with open("servers/shop/list_orders.py") as f:
    source = f.read()
print("async def list_orders(" in source)

with open("servers/shop/index.py") as f:
    print("list_orders" in f.read())
