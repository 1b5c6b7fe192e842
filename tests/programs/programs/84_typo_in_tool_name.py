from servers.shop import create_order, list_order

new = await create_order(customer="Ada Lovelace", items=[{"sku": "BK-01"}])
orders = await list_order(status="pending")
print(len(orders))
