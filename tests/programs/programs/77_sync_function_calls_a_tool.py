from servers.shop import get_order, list_orders

def order_city(order_id):
    order = get_order(order_id=order_id)
    return order["customer"]["address"]["city"]

for o in await list_orders(status="pending"):
    print(o["id"], order_city(o["id"]))
