orders = await tools.list_orders(status="pending")
print(f"{len(orders)} pending orders")
