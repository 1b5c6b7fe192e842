from servers.shop import count_orders

counting = count_orders()
print(await counting)
print(await counting)
