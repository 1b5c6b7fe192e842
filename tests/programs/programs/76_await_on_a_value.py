from servers.shop import list_orders

orders = await list_orders()
rows = await orders
print(len(rows))
