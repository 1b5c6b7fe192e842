from client import call_mcp_tool

orders = await call_mcp_tool("mcp__shop__list_orders", {"status": "pending"}, dict)
for order_id, order in orders.items():
    print(order_id, order["total"])
