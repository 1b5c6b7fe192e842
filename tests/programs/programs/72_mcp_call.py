result = await mcp.call("shop.list_orders", {"status": "pending"})
print(len(result))
