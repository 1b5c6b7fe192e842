order = await call_tool("get_order", {"order_id": "O-1001"})
return order["status"]
