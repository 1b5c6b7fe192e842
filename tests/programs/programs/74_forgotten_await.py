from servers.shop import list_orders

orders = list_orders(status="pending")
print(f"There are {len(orders)} pending orders")
