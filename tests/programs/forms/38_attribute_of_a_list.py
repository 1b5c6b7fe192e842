from servers.shop import list_orders

orders = await list_orders()
print(orders.total)
