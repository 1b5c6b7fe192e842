from servers.shop import list_orders

revenue = 0
for order in await list_orders(status="shipped"):
    revenue += order["total_amount"]
print(f"Revenue: {revenue:.2f}")
