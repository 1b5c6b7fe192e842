from servers.shop import create_order, get_order

def city_of(order_id):
    order = await get_order(order_id)
    return order["customer"]["address"]["city"]

order = await create_order("Ada Lovelace", [{"sku": "TY-01"}])
print(city_of(order["id"]))
