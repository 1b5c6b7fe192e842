from servers.shop import list_orders

orders = await list_orders(status="pending")
if not orders:
    return "No pending orders"

total = sum(order["total"] for order in orders)
return {"pending": len(orders), "total": round(total, 2)}
