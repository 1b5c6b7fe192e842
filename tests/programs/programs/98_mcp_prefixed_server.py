from mcp import runtime

print("Discovered:", runtime.discovered_servers())
orders = await mcp_shop.list_orders(status="pending")
print(len(orders))
