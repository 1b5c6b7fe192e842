from shop import list_orders

print(len(await list_orders()))
