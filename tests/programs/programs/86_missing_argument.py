from servers.shop import create_order

order = await create_order(customer="Grace Hopper", note="urgent")
print(order["id"])
